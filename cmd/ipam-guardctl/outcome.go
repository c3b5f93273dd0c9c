package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/ipam-guard/ipam-guard/cmd/ipam-guardctl/internal/audit"
	"github.com/ipam-guard/ipam-guard/pkg/chain"
)

// outcome is what became of one record that was to be released.
type outcome struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Why    string `json:"why,omitempty"`
}

// What becomes of records.
const (
	wasReleased = "released"
	wouldBe     = "would be released"
	hasFailed   = "failed"
	hasToWait   = "waits"
	wasLeft     = "left" // it lives
	notTried    = "not tried"
)

func statusOf(err error) (status, why string) {
	switch {
	case err == nil:
		return wasReleased, ""
	case errors.Is(err, chain.ErrNoRecord):
		return wasReleased, "by another call, meanwhile"
	case errors.Is(err, chain.ErrNotYet), errors.Is(err, audit.ErrLives), errors.Is(err, chain.ErrRecorded):
		return hasToWait, err.Error()
	}
	return hasFailed, err.Error()
}

// showOutcomes prints them; none is what there is to say without any.
func (t *tool) showOutcomes(kind, none string, items []outcome) error {
	return printItems(t, kind, items, func(w io.Writer) {
		var rows [][]string
		for _, item := range items {
			rows = append(rows, []string{oneLine(item.Name), item.Status, oneLine(item.Why)})
		}
		if len(rows) == 0 {
			fmt.Fprintln(w, none)
		}
		columns(w, rows)
	})
}
