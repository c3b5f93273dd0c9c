package chain

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ipam-guard/ipam-guard/pkg/conflist"
	"github.com/ipam-guard/ipam-guard/pkg/policy"
	"github.com/ipam-guard/ipam-guard/pkg/telemetry"
)

// A key is one setting, by its full name. read's error says what would be
// right: "a duration like \"20s\"".
type key struct {
	name string
	read func(s *Settings, value json.RawMessage) error
}

// keys are the settings. To add one: a field in Settings, a line here, its
// default in builtin, its line in docs/configuration.md. Plain function
// literals, so that the table costs nothing at the start.
var keys = [...]key{
	{"mode", func(s *Settings, v json.RawMessage) error { return choice(&s.Mode, v, "guard", "bypass") }},
	{"lock.scope", func(s *Settings, v json.RawMessage) error {
		return choice(&s.Lock.Scope, v, "delegate", "host", "network", "none")
	}},
	{"lock.name", setLockName},
	{"lock.onUnavailable", func(s *Settings, v json.RawMessage) error {
		return choice(&s.Lock.OnUnavailable, v, "fail", "proceed")
	}},
	{"timeout", setTimeouts},
	{"timeout.add", func(s *Settings, v json.RawMessage) error { return duration(&s.Timeout.Add, v) }},
	{"timeout.del", func(s *Settings, v json.RawMessage) error { return duration(&s.Timeout.Del, v) }},
	{"timeout.check", func(s *Settings, v json.RawMessage) error { return duration(&s.Timeout.Check, v) }},
	{"timeout.status", func(s *Settings, v json.RawMessage) error { return duration(&s.Timeout.Status, v) }},
	{"timeout.gc", func(s *Settings, v json.RawMessage) error { return duration(&s.Timeout.GC, v) }},
	{"deadline", setDeadlines},
	{"deadline.add", func(s *Settings, v json.RawMessage) error { return duration(&s.Deadline.Add, v) }},
	{"deadline.del", func(s *Settings, v json.RawMessage) error { return duration(&s.Deadline.Del, v) }},
	{"deadline.gc", func(s *Settings, v json.RawMessage) error { return duration(&s.Deadline.GC, v) }},
	{"retry.attempts", func(s *Settings, v json.RawMessage) error { return number(&s.Attempts.Del, v, 1, 100) }},
	{"retry.attempts.add", func(s *Settings, v json.RawMessage) error { return number(&s.Attempts.Add, v, 1, 100) }},
	{"retry.attempts.del", func(s *Settings, v json.RawMessage) error { return number(&s.Attempts.Del, v, 1, 100) }},
	{"retry.backoff", func(s *Settings, v json.RawMessage) error { return duration(&s.Policy.Backoff, v) }},
	{"retry.maxBackoff", func(s *Settings, v json.RawMessage) error { return duration(&s.Policy.MaxBackoff, v) }},
	{"confirm", setConfirm},
	{"policy.onError", setOnError},
	{"policy.rules", setRules},
	{"gc", func(s *Settings, v json.RawMessage) error { return choice(&s.GC, v, "forward", "own", "off") }},
	{"records.onUnavailable", func(s *Settings, v json.RawMessage) error {
		return choice(&s.Records, v, "fail", "proceed")
	}},
	{"log.level", setLogLevel},
	{"log.file", setLogFile},
	{"log.maxSize", setLogSize},
	{"log.keep", func(s *Settings, v json.RawMessage) error { return number(&s.Log.Keep, v, 0, 1000) }},
	{"stateDir", func(s *Settings, v json.RawMessage) error { return folder(&s.StateDir, v) }},
	{"lockDir", func(s *Settings, v json.RawMessage) error { return folder(&s.LockDir, v) }},
}

// find returns the key of that name, nil without one.
func find(name string) *key {
	for i := range keys {
		if keys[i].name == name {
			return &keys[i]
		}
	}
	return nil
}

// isGroup reports whether there are keys below name.
func isGroup(name string) bool {
	for i := range keys {
		if rest, ok := strings.CutPrefix(keys[i].name, name); ok && strings.HasPrefix(rest, ".") {
			return true
		}
	}
	return false
}

// isKey reports whether name is a key, or begins one, right below another.
func isKey(above, name string) bool {
	full := join(above, name)
	return !strings.Contains(name, ".") && (find(full) != nil || isGroup(full))
}

// below lists the names one level below a key ("" for the top).
func below(name string) []string {
	prefix := name + "."
	if name == "" {
		prefix = ""
	}
	var names []string
	for _, key := range keys {
		if rest, ok := strings.CutPrefix(key.name, prefix); ok {
			first, _, _ := strings.Cut(rest, ".")
			if !slices.Contains(names, first) {
				names = append(names, first)
			}
		}
	}
	return names
}

func choice(field *string, value json.RawMessage, values ...string) error {
	text, ok := conflist.String(value)
	if !ok || !slices.Contains(values, text) {
		last := len(values) - 1
		return fmt.Errorf("%s or %s", strings.Join(values[:last], ", "), values[last])
	}
	*field = text
	return nil
}

func number(field *int, value json.RawMessage, low, high int) error {
	n, err := strconv.Atoi(string(value))
	if err != nil || n < low || n > high {
		return fmt.Errorf("a whole number from %d to %d", low, high)
	}
	*field = n
	return nil
}

func duration(field *time.Duration, value json.RawMessage) error {
	d, err := asDuration(value)
	if err == nil {
		*field = d
	}
	return err
}

const longest = 24 * time.Hour

func asDuration(value json.RawMessage) (time.Duration, error) {
	text, ok := conflist.String(value)
	d, err := time.ParseDuration(text)
	if !ok || err != nil || d <= 0 || d > longest {
		return 0, fmt.Errorf(`a duration like "20s" or "1m30s", more than 0 and at most %s`, longest)
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

func folder(field *string, value json.RawMessage) error {
	text, ok := conflist.String(value)
	if !ok || !filepath.IsAbs(text) || strings.ContainsRune(text, 0) {
		return errors.New("the absolute path of a folder")
	}
	*field = filepath.Clean(text)
	return nil
}

func setLockName(s *Settings, value json.RawMessage) error {
	text, ok := conflist.String(value)
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
	text, _ := conflist.String(value)
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
	text, ok := conflist.String(value)
	if !ok || !slices.Contains([]string{"debug", "info", "warn", "error"}, text) {
		return errors.New("debug, info, warn or error")
	}
	return s.Log.Level.UnmarshalText([]byte(text))
}

func setLogFile(s *Settings, value json.RawMessage) error {
	text, ok := conflist.String(value)
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
	text, ok := conflist.String(value)
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

// setConfirm reads confirm strictly: a sign that is misspelt would confirm
// everything or nothing. null asks for none.
func setConfirm(s *Settings, value json.RawMessage) error {
	if string(value) == "null" {
		s.Confirm = nil
		return nil
	}
	want := errors.New("an object of line, ok, reject (RE2 expressions) and set (an object), line and ok present, or null")
	o, err := conflist.Parse(value)
	if err != nil || len(among(o, "", "", "line", "ok", "reject", "set")) > 0 {
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
