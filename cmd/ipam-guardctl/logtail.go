package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
)

// failedCall is a line of the log of a call that failed.
type failedCall struct {
	Time      string `json:"time"`
	Verb      string `json:"verb"`
	Network   string `json:"network"`
	Container string `json:"container"`
	Delegate  string `json:"delegate"`
	Error     string `json:"error"`
}

const (
	shownCalls = 5
	tail       = 256 << 10 // of a log
)

// failedCalls are the last ones by a log, the newest first. No log is no error.
func failedCalls(path string) ([]failedCall, error) {
	if path == "" {
		return nil, nil
	}
	text, err := tailOf(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("the log can't be seen: %w: run it as root", err)
	case err != nil:
		return nil, err
	}
	lines := bytes.Split(text, []byte{'\n'})
	slices.Reverse(lines)
	var calls []failedCall
	for _, line := range lines {
		var l struct {
			TS, Level, Msg, Verb, Network, Container, Delegate, Error string
		}
		if json.Unmarshal(line, &l) != nil || l.Level != "error" {
			continue
		}
		if l.Error == "" {
			l.Error = l.Msg
		}
		calls = append(calls, failedCall{l.TS, l.Verb, l.Network, l.Container, l.Delegate, l.Error})
		if len(calls) == shownCalls {
			break
		}
	}
	return calls, nil
}

func tailOf(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(max(0, info.Size()-tail), io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, tail))
}
