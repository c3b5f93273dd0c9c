package main

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"
)

func versionCommand(t *tool) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this tool",
		Example: "  ipam-guardctl version --output json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			type item struct {
				Version string `json:"version"`
				Go      string `json:"go"`
			}
			items := []item{{version, runtime.Version()}}
			return printItems(t, "Version", items, func(w io.Writer) {
				fmt.Fprintf(w, "ipam-guardctl %s (%s)\n", items[0].Version, items[0].Go)
			})
		},
	}
}
