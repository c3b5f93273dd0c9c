package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/ipam-guard/ipam-guard/pkg/chain"
)

func (t *tool) showValidated(items []validated) error {
	return printItems(t, "Validation", items, func(w io.Writer) {
		findings := 0
		for _, v := range items {
			v.show(w)
			findings += len(v.Findings)
		}
		fmt.Fprintf(w, "\n%s\n", count(findings, "finding"))
	})
}

func (v validated) show(w io.Writer) {
	fmt.Fprintf(w, "%s, network %s\n", v.File, orNone(v.Network))
	if v.Runtimes != "" {
		fmt.Fprintf(w, "  %s\n", v.Runtimes)
	}
	for _, f := range v.Findings {
		fmt.Fprintf(w, "  FINDING: %s\n", f)
	}
	for _, g := range v.Guards {
		g.show(w)
	}
	if len(v.Guards) == 0 && len(v.Findings) == 0 {
		fmt.Fprintln(w, "  not guarded")
	}
}

func (g guarded) show(w io.Writer) {
	fmt.Fprintf(w, "  %s: position %s, delegate %s\n", g.Plugin, g.Position, g.Delegate)
	rows := [][]string{}
	for _, s := range g.Settings {
		rows = append(rows, []string{"    " + s.Key, orNone(readable(s)), s.From})
	}
	columns(w, rows)
	fmt.Fprintln(w)
	rows = [][]string{{"    verb", "timeout", "need", "deadline", "waits at most"}}
	for _, x := range g.Times {
		rows = append(rows, []string{"    " + x.Verb, x.Timeout, x.Need, x.Deadline, x.Wait})
	}
	columns(w, rows)
}

// readable is a setting's value as people write it.
func readable(s chain.Origin) string {
	n, err := strconv.ParseInt(s.Value, 10, 64)
	if s.Key != "log.maxSize" || err != nil {
		return s.Value
	}
	unit := ""
	for _, next := range []string{"KiB", "MiB", "GiB"} {
		if n%1024 != 0 {
			break
		}
		n, unit = n/1024, next
	}
	return strconv.FormatInt(n, 10) + unit
}
