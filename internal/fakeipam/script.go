package main

import (
	"fmt"
	"strconv"
	"strings"
)

// step is one statement, ready to run.
type step struct {
	do   func(*run, []string) error
	args []string
}

// parse reads a whole script before any of it runs: a faulty one does nothing.
func parse(text string) ([]step, error) {
	var steps []step
	words := []string{}
	flush := func() error {
		if len(words) == 0 {
			return nil
		}
		st, ok := statements()[words[0]]
		args := words[1:]
		if !ok || len(args) < st.min || len(args) > st.max {
			return fmt.Errorf("no such statement: %s with %d arguments", words[0], len(args))
		}
		steps = append(steps, step{st.do, args})
		words = []string{}
		return nil
	}
	for rest := strings.TrimSpace(text); rest != ""; rest = strings.TrimSpace(rest) {
		if after, ok := strings.CutPrefix(rest, ";"); ok {
			if err := flush(); err != nil {
				return nil, err
			}
			rest = after
			continue
		}
		word, after, err := cutWord(rest)
		if err != nil {
			return nil, err
		}
		words, rest = append(words, word), after
	}
	return steps, flush()
}

// cutWord takes a quoted string or a bare word off the front.
func cutWord(s string) (word, rest string, err error) {
	if s[0] == '"' || s[0] == '`' {
		quoted, err := strconv.QuotedPrefix(s)
		if err != nil {
			return "", "", fmt.Errorf("bad quotes at %s", s)
		}
		word, err = strconv.Unquote(quoted)
		return word, s[len(quoted):], err
	}
	end := strings.IndexAny(s, " \t\n;")
	if end < 0 {
		end = len(s)
	}
	return s[:end], s[end:], nil
}
