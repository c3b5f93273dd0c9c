package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
)

// streams are what a command has of its process.
type streams struct {
	in       io.Reader
	out, err io.Writer
	env      []string
}

// colour says whether w is a terminal whose user has nothing against colour.
func (s streams) colour(w io.Writer) bool {
	f, ok := w.(*os.File)
	unwanted := slices.ContainsFunc(s.env, func(kv string) bool {
		return kv == "TERM=dumb" || strings.HasPrefix(kv, "NO_COLOR=") && kv != "NO_COLOR="
	})
	return ok && !unwanted && isatty.IsTerminal(f.Fd())
}

// The exit statuses. 0 is done.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitFindings    = 3
	exitWouldChange = 4
	exitPartly      = 5
)

// exitError ends the tool with a status. Without an error all has been said.
type exitError struct {
	status int
	err    error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exitStatusOf is what the tool ends with.
func exitStatusOf(err error) int {
	var end *exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &end):
		return end.status
	}
	return exitFailed
}

// ends is the end of a command that has said all that there is to say.
func ends(status int) error {
	if status == 0 {
		return nil
	}
	return &exitError{status: status}
}

func usagef(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// tool is what the commands share.
type tool struct {
	streams
	output string
	done   <-chan struct{} // closed when the person interrupts
}

const exitStatuses = `
Exit status: 0 done, 1 failed, 2 wrong usage, 3 findings, 4 would change something
(dry run), 5 partly done.
`

func run(s streams, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot(&tool{streams: s, done: ctx.Done()})
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	status := exitStatusOf(err)
	if text := err.Error(); text != "" {
		fmt.Fprintf(s.err, "ipam-guardctl: %s\n", text)
	}
	if status == exitUsage {
		fmt.Fprintln(s.err, "ipam-guardctl: see --help")
	}
	return status
}

func newRoot(t *tool) *cobra.Command {
	root := &cobra.Command{
		Use:   "ipam-guardctl",
		Short: "Put ipam-guard in front of a node's plugins, and look at what it does",
		Long: `ipam-guardctl puts ipam-guard in front of the plugins of a node and takes it
away again. What changes something has a --dry-run.
` + exitStatuses,
		Example: `  ipam-guardctl plan /etc/cni/net.d        what would change, and why so
  ipam-guardctl install /etc/cni/net.d     the binary, then the configuration
  ipam-guardctl uninstall /etc/cni/net.d   and back`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(t.in)
	root.SetOut(t.out)
	root.SetErr(t.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exitError{exitUsage, err} })
	root.PersistentFlags().StringVarP(&t.output, "output", "o", "table", "table or json")
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if t.output != "table" && t.output != "json" {
			return usagef("--output %s: want table or json", t.output)
		}
		return nil
	}
	root.AddCommand(planCommand(t), wrapCommand(t), unwrapCommand(t), installCommand(t), uninstallCommand(t),
		validateCommand(t), explainCommand(t), versionCommand(t))
	root.AddCommand(statusCommand(t), pendingCommand(t), replayCommand(t), forgetCommand(t), doctorCommand(t))
	root.AddCommand(auditCommand(t), gcCommand(t))
	strictArgs(root)
	return root
}

const wantFolder = "want the runtime's conf folder, mostly /etc/cni/net.d"

// strictArgs makes wrong arguments wrong usage, in every command.
func strictArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if err != nil && len(args) == 0 && strings.Contains(cmd.Use, "FOLDER") {
				return usagef(wantFolder)
			}
			if err != nil {
				return &exitError{exitUsage, err}
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		strictArgs(sub)
	}
}
