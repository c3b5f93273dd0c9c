//go:build results

package crio_test

import (
	"testing"

	"github.com/ipam-guard/ipam-guard/integration/internal/trial"
)

// TestResults is the complete table.
func TestResults(t *testing.T) {
	trial.Suite{
		Section: "crio", Name: "CRI-O's order of calls", Versions: []string{trial.ModuleVersion("github.com/containernetworking/cni")},
		Kind: kind, Positions: trial.Positions(), Try: try,
	}.Results(t)
}
