package main_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/rogpeppe/go-internal/testscript"
)

// schema wants the JSON that was just printed to have the keys and kinds of value
// that a file lists, and no others: schema FILE. Programs rely on them.
func schema(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: schema FILE")
	}
	var doc any
	if err := json.Unmarshal([]byte(ts.ReadFile("stdout")), &doc); err != nil {
		ts.Fatalf("stdout is not JSON: %v", err)
	}
	lines := map[string]bool{}
	describe(doc, "", lines)
	var all []string
	for line := range lines {
		all = append(all, line+"\n")
	}
	slices.Sort(all)
	have, want := strings.Join(all, ""), ts.ReadFile(args[0])
	if have != want {
		ts.Fatalf("%s", diff.Diff(args[0], []byte(want), "stdout", []byte(have)))
	}
}

// describe adds a line for each key of a document: its path, and what is there.
func describe(value any, path string, lines map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		for key, member := range v {
			describe(member, path+"."+key, lines)
		}
	case []any:
		if len(v) == 0 {
			lines[path+"[]"] = true
		}
		for _, element := range v {
			describe(element, path+"[]", lines)
		}
	default:
		kind := map[string]string{"bool": "boolean", "float64": "number"}[fmt.Sprintf("%T", v)]
		if kind == "" {
			kind = fmt.Sprintf("%T", v)
		}
		lines[path+" "+kind] = true
	}
}
