package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// print answers with items: for programs as one JSON document, for people as
// the table has it.
func printItems[T any](t *tool, kind string, items []T, table func(w io.Writer)) error {
	if t.output != "json" {
		table(t.out)
		return nil
	}
	if items == nil {
		items = []T{}
	}
	enc := json.NewEncoder(t.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Items      []T    `json:"items"`
	}{"ipam-guard/v1", kind, items})
}

// columns writes rows with their cells under each other.
func columns(w io.Writer, rows [][]string) {
	all := bufio.NewWriter(w) // a tabwriter writes cell by cell
	tw := tabwriter.NewWriter(all, 0, 8, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	tw.Flush()
	_ = all.Flush() // a reader who has gone away has gone away
}

// warn says something to the person, beside the answer.
func (t *tool) warn(format string, args ...any) {
	fmt.Fprintf(t.err, "ipam-guardctl: "+format+"\n", args...)
}

// paint colours a diff, where colour is wanted.
func (t *tool) paint(diff string) string {
	if !t.colour(t.out) {
		return diff
	}
	lines := strings.SplitAfter(diff, "\n")
	for i, line := range lines {
		switch {
		case strings.HasPrefix(line, "-"):
			lines[i] = "\x1b[31m" + line + "\x1b[0m"
		case strings.HasPrefix(line, "+"):
			lines[i] = "\x1b[32m" + line + "\x1b[0m"
		}
	}
	return strings.Join(lines, "")
}
