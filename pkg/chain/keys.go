package chain

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/ipam-guard/ipam-guard/pkg/conflist"
	"github.com/ipam-guard/ipam-guard/pkg/policy"
	"github.com/ipam-guard/ipam-guard/pkg/telemetry"
)

// A setter reads one value into the settings. Its error says what would be
// right: "a duration like \"20s\"".
type setter func(s *Settings, value json.RawMessage) error

// keys are the settings, by their full name. To add one: a field in Settings, a
// line here, its default in builtin, its line in docs/configuration.md.
var keys = map[string]setter{
	"mode":                  choice(func(s *Settings) *string { return &s.Mode }, "guard", "bypass"),
	"lock.scope":            choice(func(s *Settings) *string { return &s.Lock.Scope }, "delegate", "host", "network", "none"),
	"lock.name":             setLockName,
	"lock.onUnavailable":    choice(func(s *Settings) *string { return &s.Lock.OnUnavailable }, "fail", "proceed"),
	"timeout":               setTimeouts,
	"timeout.add":           duration(func(s *Settings) *time.Duration { return &s.Timeout.Add }),
	"timeout.del":           duration(func(s *Settings) *time.Duration { return &s.Timeout.Del }),
	"timeout.check":         duration(func(s *Settings) *time.Duration { return &s.Timeout.Check }),
	"timeout.status":        duration(func(s *Settings) *time.Duration { return &s.Timeout.Status }),
	"timeout.gc":            duration(func(s *Settings) *time.Duration { return &s.Timeout.GC }),
	"deadline":              setDeadlines,
	"deadline.add":          duration(func(s *Settings) *time.Duration { return &s.Deadline.Add }),
	"deadline.del":          duration(func(s *Settings) *time.Duration { return &s.Deadline.Del }),
	"deadline.gc":           duration(func(s *Settings) *time.Duration { return &s.Deadline.GC }),
	"retry.attempts":        number(func(s *Settings) *int { return &s.Attempts.Del }, 1, 100),
	"retry.attempts.add":    number(func(s *Settings) *int { return &s.Attempts.Add }, 1, 100),
	"retry.attempts.del":    number(func(s *Settings) *int { return &s.Attempts.Del }, 1, 100),
	"retry.backoff":         duration(func(s *Settings) *time.Duration { return &s.Policy.Backoff }),
	"retry.maxBackoff":      duration(func(s *Settings) *time.Duration { return &s.Policy.MaxBackoff }),
	"confirm":               setConfirm,
	"policy.onError":        setOnError,
	"policy.rules":          setRules,
	"gc":                    choice(func(s *Settings) *string { return &s.GC }, "forward", "own", "off"),
	"records.onUnavailable": choice(func(s *Settings) *string { return &s.Records }, "fail", "proceed"),
	"log.level":             setLogLevel,
	"log.file":              setLogFile,
	"log.maxSize":           setLogSize,
	"log.keep":              number(func(s *Settings) *int { return &s.Log.Keep }, 0, 1000),
	"stateDir":              folder(func(s *Settings) *string { return &s.StateDir }),
	"lockDir":               folder(func(s *Settings) *string { return &s.LockDir }),
}

// isGroup reports whether there are keys below name.
func isGroup(name string) bool { return len(below(name)) > 0 }

// below lists the names one level below a key ("" for the top), sorted.
func below(name string) []string {
	prefix := name + "."
	if name == "" {
		prefix = ""
	}
	var names []string
	for key := range keys {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			first, _, _ := strings.Cut(rest, ".")
			if !slices.Contains(names, first) {
				names = append(names, first)
			}
		}
	}
	sort.Strings(names)
	return names
}

func choice(field func(*Settings) *string, values ...string) setter {
	want := strings.Join(values, ", ")
	if i := strings.LastIndex(want, ", "); i >= 0 {
		want = want[:i] + " or " + want[i+2:]
	}
	return func(s *Settings, value json.RawMessage) error {
		text, ok := asString(value)
		if !ok || !slices.Contains(values, text) {
			return errors.New(want)
		}
		*field(s) = text
		return nil
	}
}

func number(field func(*Settings) *int, low, high int) setter {
	return func(s *Settings, value json.RawMessage) error {
		n, err := strconv.Atoi(string(value))
		if err != nil || n < low || n > high {
			return fmt.Errorf("a whole number from %d to %d", low, high)
		}
		*field(s) = n
		return nil
	}
}

func duration(field func(*Settings) *time.Duration) setter {
	return func(s *Settings, value json.RawMessage) error {
		d, err := asDuration(value)
		if err != nil {
			return err
		}
		*field(s) = d
		return nil
	}
}

const longest = 24 * time.Hour

func asDuration(value json.RawMessage) (time.Duration, error) {
	want := fmt.Errorf(`a duration like "20s" or "1m30s", more than 0 and at most %s`, longest)
	text, ok := asString(value)
	if !ok {
		return 0, want
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > longest {
		return 0, want
	}
	return d, nil
}

// setTimeouts reads one duration for all but STATUS: that one has to answer
// while a runtime waits to call its node ready.
func setTimeouts(s *Settings, value json.RawMessage) error {
	d, err := asDuration(value)
	if err != nil {
		return fmt.Errorf("%w, or an object of add, check, del, gc, status", err)
	}
	s.Timeout.Add, s.Timeout.Del, s.Timeout.Check, s.Timeout.GC = d, d, d, d
	return nil
}

func setDeadlines(s *Settings, value json.RawMessage) error {
	d, err := asDuration(value)
	if err != nil {
		return fmt.Errorf("%w, or an object of add, del, gc", err)
	}
	s.Deadline.Add, s.Deadline.Del, s.Deadline.GC = d, d, d
	return nil
}

func folder(field func(*Settings) *string) setter {
	return func(s *Settings, value json.RawMessage) error {
		text, ok := asString(value)
		if !ok || !filepath.IsAbs(text) || strings.ContainsRune(text, 0) {
			return errors.New("the absolute path of a folder")
		}
		*field(s) = filepath.Clean(text)
		return nil
	}
}

func setLockName(s *Settings, value json.RawMessage) error {
	text, ok := asString(value)
	if !ok || !fileName(text) {
		return errors.New("a name of letters, digits, '.', '_' and '-', at most 100 long")
	}
	s.Lock.Name = text
	return nil
}

// fileName reports whether text can be a part of a file's name as it is.
func fileName(text string) bool {
	for _, r := range text {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r) {
			return false
		}
	}
	return text != "" && len(text) <= 100
}

func setOnError(s *Settings, value json.RawMessage) error {
	text, _ := asString(value)
	then := policy.Then(text)
	if then != policy.Fail && then != policy.Defer {
		return errors.New("fail or defer")
	}
	s.Policy.OnError = then
	return nil
}

func setRules(s *Settings, value json.RawMessage) error {
	rules, err := policy.ParseRules(value)
	if err != nil {
		return err
	}
	s.Policy.Rules = rules
	return nil
}

func setLogLevel(s *Settings, value json.RawMessage) error {
	text, ok := asString(value)
	if !ok || !slices.Contains([]string{"debug", "info", "warn", "error"}, text) {
		return errors.New("debug, info, warn or error")
	}
	return s.Log.Level.UnmarshalText([]byte(text))
}

func setLogFile(s *Settings, value json.RawMessage) error {
	text, ok := asString(value)
	if !ok {
		return errors.New(`the absolute path of a file, or "" for none`)
	}
	if text != "" {
		if err := telemetry.CheckFile(text); err != nil {
			return err
		}
	}
	s.Log.File = text
	return nil
}

// setLogSize reads a size: bytes, or a string with a unit.
func setLogSize(s *Settings, value json.RawMessage) error {
	text, ok := asString(value)
	if !ok {
		text = string(value)
	}
	unit := int64(1)
	for i, suffix := range []string{"KiB", "MiB", "GiB"} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			text, unit = rest, 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > (1<<40)/unit {
		return errors.New(`a size like "10MiB" (KiB, MiB, GiB, or bytes), at least 1 and at most 1024GiB`)
	}
	s.Log.MaxSize = n * unit
	return nil
}

func asString(value json.RawMessage) (string, bool) {
	if len(value) == 0 || value[0] != '"' {
		return "", false
	}
	var text string
	err := json.Unmarshal(value, &text)
	return text, err == nil
}

// setConfirm reads confirm strictly: a sign that is misspelt would confirm
// everything or nothing.
func setConfirm(s *Settings, value json.RawMessage) error {
	want := errors.New("an object of line, ok, reject (RE2 expressions) and set (an object), line and ok present")
	o, err := conflist.Parse(value)
	if err != nil || len(unknown(o, "", "", "line", "ok", "reject", "set")) > 0 {
		return want
	}
	var c Confirm
	if err := json.Unmarshal(value, &c); err != nil || c.Line == "" || c.OK == "" {
		return want
	}
	for _, re := range []string{c.Line, c.OK, c.Reject} {
		if _, err := regexp.Compile(re); err != nil {
			return fmt.Errorf("RE2 expressions: %w", err)
		}
	}
	if _, err := o.Object("set"); err != nil {
		return want
	}
	s.Confirm = &c
	return nil
}
