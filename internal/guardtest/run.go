package guardtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Opts say how a plugin is called, where it is not the usual way.
type Opts struct {
	Conf   Conf
	Stdin  []byte // in place of Conf
	Binary string // in place of the guard
	IfName string // eth0 unless set
	Args   string // CNI_ARGS
	Path   string // CNI_PATH, the node's Bin unless set
	Netns  string // CNI_NETNS, the container's (see Netns) unless set
	// Env comes last: KEY=VALUE sets, KEY removes. "CNI_NETNS=" is a DEL
	// without netns.
	Env        []string
	Credential *syscall.Credential // another user, see Open

	// Runtime puts a small process in between that plays the runtime: it is
	// what Kill kills, the plugin lives on. It measures the plugin's memory.
	Runtime bool
}

// Run calls the plugin and waits for its end.
func (n *Node) Run(t testing.TB, verb, container string, o Opts) Result {
	t.Helper()
	return n.Start(t, verb, container, o).Wait(t)
}

// Start calls the plugin.
func (n *Node) Start(t testing.TB, verb, container string, o Opts) *Proc {
	t.Helper()
	binary := o.Binary
	if binary == "" {
		binary = n.Guard()
	}
	cmd := exec.Command(binary)
	cmd.Dir = n.Dir
	cmd.Env = n.environ(t, verb, container, o)
	// A group of its own: whatever a plugin does to its group, the tests live.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: o.Credential}
	stdin := o.Stdin
	if stdin == nil {
		stdin = n.Netconf(o.Conf)
	}
	report := ""
	if o.Runtime {
		report = n.reportFile(t)
		cmd.Path = filepath.Join(n.Bin, "fake")
		cmd.Args = []string{cmd.Path, "runtime", report, binary}
	}
	return start(t, cmd, stdin, report)
}

func (n *Node) reportFile(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(n.Dir, "runtime-")
	if err == nil {
		err = os.Chmod(dir, 0o777)
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "report")
}

// environ is what a runtime sets for the verb, and little else.
func (n *Node) environ(t testing.TB, verb, container string, o Opts) []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"),
		"FAKEIPAM_DIR=" + n.FakeDir,
		"CNI_NETNS_OVERRIDE=1", // a test's netns is its own
		"CNI_COMMAND=" + verb,
		"CNI_PATH=" + or(o.Path, n.Bin),
	}
	if verb == "ADD" || verb == "DEL" || verb == "CHECK" {
		netns := o.Netns
		if netns == "" {
			netns = n.netns(t, verb, container)
		}
		env = append(env, "CNI_CONTAINERID="+container, "CNI_IFNAME="+or(o.IfName, "eth0"), "CNI_NETNS="+netns)
	}
	if o.Args != "" {
		env = append(env, "CNI_ARGS="+o.Args)
	}
	for _, e := range o.Env {
		key, _, set := strings.Cut(e, "=")
		env = slices.DeleteFunc(env, func(have string) bool { return strings.HasPrefix(have, key+"=") })
		if set {
			env = append(env, e)
		}
	}
	return env
}

// Result is how a plugin ended.
type Result struct {
	RC             int            // -1: see Signal
	Signal         syscall.Signal // that ended it, or 0
	Stdout, Stderr string         // the first 4 MiB of each
	StdoutBytes    int64          // all that came
	Took           time.Duration  // from start to the end of the process
	// Held: two seconds after the end somebody still had its stdout or stderr
	// open. A runtime would still be waiting.
	Held     bool
	MaxRSSKB int64 // with Opts.Runtime only
}
