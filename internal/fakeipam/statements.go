package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
)

type statement struct {
	min, max int // arguments
	do       func(*run, []string) error
}

func statements() map[string]statement {
	return map[string]statement{
		"alloc":        {0, 0, func(r *run, _ []string) error { return r.take(v4) }},
		"alloc6":       {0, 0, func(r *run, _ []string) error { return r.take(v6) }},
		"alloc-once":   {0, 0, (*run).allocOnce},
		"alloc-same":   {0, 0, (*run).allocSame},
		"free":         {0, 0, func(r *run, _ []string) error { return r.leases().free(r.owner.sameInterface) }},
		"free-network": {0, 0, func(r *run, _ []string) error { return r.leases().free(r.owner.same) }},
		"gc":           {0, 0, (*run).gc},
		"result":       {0, 0, (*run).printResult},
		"version":      {0, 0, (*run).printVersion},
		"print":        {1, 1, func(r *run, a []string) error { return r.print(a[0]) }},
		"printfile":    {1, 1, (*run).printFile},
		"stderr":       {1, 1, func(_ *run, a []string) error { _, _ = os.Stderr.WriteString(a[0]); return nil }},
		"flood":        {1, 1, func(r *run, a []string) error { r.printed = true; return flood(os.Stdout, a[0]) }},
		"floodstderr":  {1, 1, func(_ *run, a []string) error { return flood(os.Stderr, a[0]) }},
		"exit":         {1, 4, exitWith},
		"error0":       {2, 3, func(r *run, a []string) error { return exitWith(r, append([]string{"0"}, a...)) }},
		"sleep":        {1, 1, func(_ *run, a []string) error { return sleep(a[0]) }},
		"waitfile":     {1, 1, (*run).waitFile},
		"touch":        {1, 1, func(r *run, a []string) error { return os.WriteFile(r.path(a[0]), nil, 0o666) }},
		"fork":         {1, 1, func(r *run, a []string) error { return r.leaveChild(a[0], false) }},
		"daemon":       {1, 1, func(r *run, a []string) error { return r.leaveChild(a[0], true) }},
		"ignore":       {1, 1, func(_ *run, a []string) error { return ignore(a[0]) }},
		"die":          {1, 1, func(_ *run, a []string) error { return die(a[0]) }},
		"panic":        {0, 0, func(*run, []string) error { panic("fakeipam: as the script says") }},
		"killparent":   {0, 0, func(*run, []string) error { return killParent() }},
	}
}

func (r *run) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(r.dir, name)
}

func (r *run) print(s string) error {
	r.printed = true
	return written(os.Stdout.WriteString(s))
}

// written makes a plugin whose result nobody takes exit 1 and say so.
func written(_ int, err error) error {
	if err == nil {
		return nil
	}
	fmt.Fprintf(os.Stderr, "fakeipam: %v\n", err)
	return exit{code: 1}
}

func (r *run) printFile(a []string) error {
	data, err := os.ReadFile(r.path(a[0]))
	if err != nil {
		return err
	}
	return r.print(string(data))
}

// exitWith is N, then perhaps the message, code and details of an error object.
func exitWith(_ *run, a []string) error {
	code, err := strconv.Atoi(a[0])
	if err != nil {
		return err
	}
	if len(a) == 1 {
		return exit{code: code}
	}
	if len(a) == 2 {
		return errors.New("exit: a message needs a code")
	}
	cni, err := strconv.ParseUint(a[2], 10, 32)
	if err != nil {
		return err
	}
	answer := types.NewError(uint(cni), a[1], strings.Join(a[3:], " "))
	return exit{code: code, answer: answer}
}

func sleep(d string) error {
	v, err := time.ParseDuration(d)
	time.Sleep(v)
	return err
}

func (r *run) waitFile(a []string) error {
	for {
		if _, err := os.Lstat(r.path(a[0])); err == nil {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// flood goes on with the script when nobody takes the output: many plugins
// don't look either.
func flood(w io.Writer, size string) error {
	left, err := bytesOf(size)
	if err != nil {
		return err
	}
	chunk := bytes.Repeat([]byte("flood flood flood flood flood f\n"), 2048) // 64 KiB
	for left > 0 {
		n, err := w.Write(chunk[:min(left, len(chunk))])
		if err != nil {
			fmt.Fprintf(os.Stderr, "fakeipam: flood stopped: %v\n", err)
			return nil
		}
		left -= n
	}
	return nil
}

func bytesOf(size string) (int, error) {
	unit := 1
	for suffix, n := range map[string]int{"KB": 1 << 10, "MB": 1 << 20} {
		if strings.HasSuffix(size, suffix) {
			unit = n
		}
	}
	n, err := strconv.Atoi(strings.TrimRight(size, "KMB"))
	return n * unit, err
}
