// Command bench measures what a pod's ADD and DEL cost, whole processes in one run: host-local bare, behind the least
// wrapper in C, behind the least one in Go (the floor), and behind the guard.
//
// The variants take turns, and the order turns with each round, so that whatever else the machine does meets all of
// them alike. Every ADD must show an address that host-local has reserved, and every DEL must free it: a run in which
// one does not is no result. Page faults hold still and are gated, with the binary's size and what it links; switches,
// processor and wall time are reported only.
//
// Exit codes: 0 done, 1 failed or beyond a gate, 2 usage.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// options are what the command line says. Paths are absolute once they are parsed.
type options struct {
	bin      string // folder with ipam-guard, cni/host-local, bench/wrapper and bench/floor
	json     string // "" for none
	version  string // the guard's, for the report
	pairs    int
	warmup   int // rounds that are run and not counted
	gate     bool
	markdown bool
}

func run(args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return 2
	}
	ok, err := bench(o, stdout)
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return exitCode(o.gate, ok)
}

// exitCode fails a run for its figures only where it was asked to.
func exitCode(gate, passed bool) int {
	if gate && !passed {
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.bin, "bin", "bin", "`folder` with ipam-guard, cni/host-local, bench/wrapper and bench/floor")
	flags.StringVar(&o.json, "json", "bin/bench.json", "`file` for all figures, sample by sample; empty for none")
	flags.StringVar(&o.version, "version", "dev", "the guard's version, for the report")
	flags.IntVar(&o.pairs, "pairs", 200, "pairs of ADD and DEL per variant")
	flags.IntVar(&o.warmup, "warmup", 5, "rounds before them that are not counted")
	flags.BoolVar(&o.gate, "gate", false, "exit 1 if a gate is passed")
	flags.BoolVar(&o.markdown, "markdown", false, "print the table as Markdown, for docs/performance.md")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 || o.pairs < 1 || o.warmup < 0 {
		fmt.Fprintln(stderr, "bench: no arguments, -pairs of at least 1 and -warmup of at least 0, please")
		return o, errors.New("usage")
	}
	bin, err := filepath.Abs(o.bin)
	o.bin = bin
	return o, err
}

// bench measures, reports, and tells whether every gate held.
func bench(o options, stdout io.Writer) (bool, error) {
	tmp, err := os.MkdirTemp("", "ipam-guard-bench-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(tmp)
	variants := variants(o.bin, tmp)
	samples, err := rounds(variants, o)
	if err != nil {
		return false, err
	}
	r := report{Pairs: o.pairs, Machine: machine()}
	if r.Versions, err = versions(o); err != nil {
		return false, err
	}
	r.Variants = summarize(variants, samples)
	if r.Gates, err = gates(o.bin, r.Variants); err != nil {
		return false, err
	}
	if err := r.save(o.json); err != nil {
		return false, err
	}
	return r.passed(), r.print(stdout, o.markdown)
}

func (r report) save(path string) error {
	if path == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
