package conf_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
	"github.com/ipam-guard/ipam-guard/pkg/policy"
)

const root = ".."

// documents are all that people read, by their paths in the project.
func documents(t *testing.T) []string {
	t.Helper()
	var paths []string
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		found, _ := filepath.Glob(filepath.Join(root, pattern))
		for _, path := range found {
			paths = append(paths, strings.TrimPrefix(path, root+"/"))
		}
	}
	if len(paths) < 5 {
		t.Fatalf("only these documents were found: %v", paths)
	}
	return paths
}

func document(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// sectionOf is what stands below a heading, up to the next one of its level or above.
func sectionOf(t *testing.T, path, heading string) string {
	t.Helper()
	_, text, ok := strings.Cut(document(t, path), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("%s has no heading %q", path, heading)
	}
	level, _, _ := strings.Cut(heading, " ")
	end := regexp.MustCompile(fmt.Sprintf(`(?m)^#{1,%d} `, len(level))).FindStringIndex(text)
	if end == nil {
		return text
	}
	return text[:end[0]]
}

var (
	code    = regexp.MustCompile("`([^`]*)`")
	setting = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| [a-z]+ \\| (?:`([^`]+)`)? ?\\|")
)

// documented are the rows of the table of settings: key, default ("" for none).
func documented(t *testing.T) [][]string {
	t.Helper()
	var rows [][]string
	for _, row := range setting.FindAllStringSubmatch(sectionOf(t, "docs/configuration.md", "## Settings"), -1) {
		rows = append(rows, row[1:])
	}
	return rows
}

// Every key that the code reads is documented, and every one that is documented is read.
func TestSettingsAreDocumented(t *testing.T) {
	var have []string
	for _, row := range documented(t) {
		have = append(have, row[0])
	}
	slices.Sort(have)
	if diff := cmp.Diff(keysInCode(t), have); diff != "" {
		t.Errorf("settings (-pkg/chain/keys.go +docs/configuration.md):\n%s", diff)
	}
}

// keysInCode reads the names in the table that pkg/chain reads settings by.
func keysInCode(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "pkg/chain/keys.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != "keys" {
			return true
		}
		for _, element := range spec.Values[0].(*ast.CompositeLit).Elts {
			key, err := strconv.Unquote(element.(*ast.CompositeLit).Elts[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, key)
		}
		return false
	})
	if len(keys) == 0 {
		t.Fatal("pkg/chain/keys.go has no table named keys")
	}
	slices.Sort(keys)
	return keys
}

// Each default is written as one can write it in a configuration.
func TestDocumentedDefaultsAreValues(t *testing.T) {
	r := newRecorder(t, guardtest.New(t), "host-local")
	for _, row := range documented(t) {
		key, value := row[0], row[1]
		// Not those that would lead a test out of its folder; docs say what they are.
		if value == "" || key == "log.file" || key == "stateDir" || key == "lockDir" {
			continue
		}
		names := strings.Split(key, ".")
		slices.Reverse(names)
		for _, name := range names {
			value = fmt.Sprintf(`{%q: %s}`, name, value)
		}
		if got := r.call(t, "ADD", withGuard(value)); got.RC != 0 {
			t.Errorf("the default of %s is refused: %s", key, got.Stdout)
		}
	}
}

// Each built-in rule has its section, in order, with all that it matches, what it says, and the reports behind it.
func TestBuiltInRulesAreDocumented(t *testing.T) {
	sections := strings.Split(sectionOf(t, "docs/policy.md", "## Built-in rules"), "\n### ")[1:]
	rules := policy.Builtins()
	if len(sections) != len(rules) {
		t.Fatalf("%d rules, %d sections", len(rules), len(sections))
	}
	for i, rule := range rules {
		for _, want := range describe(i+1, rule) {
			if !strings.Contains(oneLine(sections[i]), oneLine(want)) {
				t.Errorf("section %d, %s, lacks %q", i+1, rule.Name, want)
			}
		}
	}
}

// describe is what docs/policy.md has to say of a rule.
func describe(n int, rule policy.Builtin) []string {
	row := fmt.Sprintf("| %s | %s | %s | %s |", words(rule.Verbs), words(rule.Kinds), yes(rule.Retry), or(string(rule.Then), "onError"))
	want := []string{fmt.Sprintf("%d. %s", n, rule.Name), row}
	for _, pattern := range []string{rule.Message, rule.Unless} {
		if pattern != "" {
			want = append(want, "```text\n"+pattern+"\n```")
		}
	}
	for _, c := range rule.Codes {
		want = append(want, fmt.Sprintf("Code %d", c))
	}
	reports, _, _ := strings.Cut(rule.Why, ": ")
	return append(want, strings.Split(reports, ", ")...)
}

func words[T ~string](values []T) string {
	var all []string
	for _, v := range values {
		all = append(all, string(v))
	}
	return or(strings.Join(all, ", "), "any")
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

var link = regexp.MustCompile(`\]\(([^)#\s]*)(#[^)\s]*)?\)`)

// Links inside the project lead somewhere.
func TestLinksLeadSomewhere(t *testing.T) {
	for _, path := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(document(t, path), -1) {
			target, anchor := m[1], m[2]
			if strings.Contains(target, "://") {
				continue
			}
			to := path
			if target != "" {
				to = filepath.Join(filepath.Dir(path), target)
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s links to %s, which isn't there", path, to)
			} else if anchor != "" && !slices.Contains(anchors(document(t, to)), anchor) {
				t.Errorf("%s links to %s%s, which has no such heading", path, to, anchor)
			}
		}
	}
}

// anchors are a document's headings as links name them.
func anchors(doc string) []string {
	var all []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(doc, -1) {
		kept := regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, "#"+strings.ReplaceAll(kept, " ", "-"))
	}
	return all
}

// What people are told to type or to open is there.
func TestTargetsAndPathsExist(t *testing.T) {
	makefile := document(t, "Makefile")
	for _, path := range documents(t) {
		doc := document(t, path)
		for _, m := range regexp.MustCompile("(?m)(?:`|^)make ([a-z-]+)").FindAllStringSubmatch(doc, -1) {
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s: the Makefile has no target %s", path, m[1])
			}
		}
		for _, m := range regexp.MustCompile("`((?:cmd|pkg|internal|conf|docs|integration|bench|demo|tools)/[\\w./-]*)`").FindAllStringSubmatch(doc, -1) {
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s names %s, which isn't there", path, m[1])
			}
		}
	}
}
