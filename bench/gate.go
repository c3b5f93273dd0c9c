package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ipam-guard/ipam-guard/internal/layout"
)

// What may be gated is what holds still: faults differ by a few per cent from run to run, wall time by much more.
const (
	maxFaultsOverBare  = 1.80
	maxFaultsOverFloor = 1.20
	maxSize            = 3_500_000
)

// A gate is one limit and how the guard stands to it.
type gate struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Limit  float64 `json:"limit"`
	Detail string  `json:"detail,omitempty"`
}

func (g gate) ok() bool { return g.Value <= g.Limit }

func gates(bin string, summaries []summary) ([]gate, error) {
	binary := filepath.Join(bin, "ipam-guard")
	info, err := os.Stat(binary)
	if err != nil {
		return nil, err
	}
	linked, err := forbidden(binary)
	if err != nil {
		return nil, err
	}
	return append(faultGates(summaries),
		gate{Name: "size of the binary, bytes", Value: float64(info.Size()), Limit: maxSize},
		gate{Name: "forbidden packages linked", Value: float64(len(linked)), Detail: strings.Join(linked, ", ")},
	), nil
}

func faultGates(summaries []summary) []gate {
	faults := map[string]float64{}
	for _, s := range summaries {
		faults[s.Name] = float64(s.Median.MinorFaults)
	}
	return []gate{
		{Name: "minor faults, times bare", Value: faults[guarded] / faults[bare], Limit: maxFaultsOverBare},
		{Name: "minor faults, times the Go floor", Value: faults[guarded] / faults[floor], Limit: maxFaultsOverFloor},
	}
}

// forbidden asks the binary which command it is, and the go command what that links.
func forbidden(binary string) ([]string, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("%s does not say what it was built from: %w", binary, err)
	}
	pkgs, err := layout.List(".", "-deps", info.Path)
	if err != nil {
		return nil, err
	}
	return layout.Linked(pkgs, layout.PluginForbidden()), nil
}
