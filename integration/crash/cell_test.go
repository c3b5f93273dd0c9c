//go:build crash || integration

package crash_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

type (
	script = guardtest.Script
	object = guardtest.Object
)

// cell is one node on which one kill is tried.
type cell struct {
	*guardtest.Node
	T      testing.TB
	conf   guardtest.Conf    // of every call
	living map[string]string // container -> address: answered with success, DEL not asked for
}

// bystander lives through all of a cell.
const bystander = "bystander"

func newCell(t testing.TB, op operation) *cell {
	c := &cell{Node: guardtest.New(t), T: t, living: map[string]string{}}
	c.conf = guardtest.Conf{Delegate: op.delegate, Guard: op.guard, Top: op.top}
	c.live(bystander)
	if op.prepare != nil {
		op.prepare(c)
	}
	if op.script != nil {
		c.SetScript(t, op.script)
	}
	return c
}

func (c *cell) opts() guardtest.Opts { return guardtest.Opts{Conf: c.conf} }

// live attaches a container; it lives from now on.
func (c *cell) live(container string) {
	c.living[container] = c.Run(c.T, "ADD", container, c.opts()).IPs(c.T)[0]
}

// owe leaves a pending release of a container that was attached: its DEL fails.
func (c *cell) owe(container string) {
	c.attach(container)
	c.SetScript(c.T, script{"DEL": broken})
	if r := c.Run(c.T, "DEL", container, c.opts()); r.RC == 0 {
		c.T.Fatalf("a DEL that was to fail: %+v", r)
	}
	c.SetScript(c.T, nil)
}

// attach attaches a container that is about to be released.
func (c *cell) attach(container string) { c.Run(c.T, "ADD", container, c.opts()).OK(c.T) }

const (
	broken  = `exit 1 "no such pool" 999`
	refused = `exit 1 "dial tcp 10.0.0.1:443: connect: connection refused" 999`
)

// ask is the call that a kill meets.
func (c *cell) ask(op operation) guardtest.Opts {
	o := c.opts()
	if op.verb == "GC" {
		o.Conf.Version = "1.1.0"
		top := object{"cni.dev/valid-attachments": []any{object{"containerID": bystander, "ifname": "eth0"}}}
		for k, v := range op.top {
			top[k] = v
		}
		o.Conf.Top = top
	}
	return o
}

// traced makes the call of an operation under the tracer and returns the calls
// that were counted; killed says whether it was killed before the n-th of them.
func (c *cell) traced(op operation, n int) (calls []string, killed bool, r guardtest.Result) {
	self, err := os.Executable()
	if err != nil {
		c.T.Fatal(err)
	}
	report := filepath.Join(c.Dir, "trace")
	o := c.ask(op)
	o.Binary = self
	o.Env = append(o.Env, traceEnv+"="+strconv.Itoa(n)+" "+report+" "+c.Guard())
	r = c.Run(c.T, op.verb, op.container, o)
	if r.RC == exitRefused {
		c.T.Skip("ptrace is refused here: a kill can't be put before a system call")
	}
	data, err := os.ReadFile(report)
	if err != nil {
		c.T.Fatalf("%v; the tracer: %+v", err, r)
	}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == killedLine {
			return calls, true, r
		}
		calls = append(calls, line)
	}
	return calls, false, r
}

// kind is the name of a counted call.
func kind(call string) string {
	name, _, _ := strings.Cut(call, "\t")
	return name
}

func (v variant) String() string {
	netns, time := "kept", "fresh"
	if v.gone {
		netns = "gone"
	}
	if v.aged {
		time = "aged"
	}
	return "netns " + netns + ", " + time
}
