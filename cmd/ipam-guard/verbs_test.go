package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

var versions = []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// Every verb with every version of the specification: what the delegate says
// goes through byte for byte, what a version doesn't have yet is refused.
func TestEveryVerbInEveryVersion(t *testing.T) {
	t.Parallel()
	shape := map[string]string{"0.1.0": "ip4", "0.2.0": "ip4", "0.3.0": "version", "0.3.1": "version", "0.4.0": "version", "1.0.0": "address", "1.1.0": "address"}
	since := map[string]string{"CHECK": "0.4.0", "GC": "1.1.0", "STATUS": "1.1.0"}
	for _, v := range versions {
		t.Run(v, func(t *testing.T) {
			t.Parallel()
			n, twin := guardtest.New(t), guardtest.New(t)
			script := Script{"ADD": "alloc; alloc6"}
			o, direct := ask(script, nil), bare(twin, script)
			o.Conf.Version, direct.Conf.Version = v, v
			o.Conf.Top = Object{"cni.dev/valid-attachments": []any{Object{"containerID": "c1", "ifname": "eth0"}}}
			r := n.Run(t, "ADD", "c1", o)
			if want := twin.Run(t, "ADD", "c1", direct).OK(t).Stdout; r.OK(t).Stdout != want {
				t.Errorf("have %s\nwant %s", r.Stdout, want)
			}
			has(t, r.Stdout, `"`+shape[v]+`"`, "10.9.0.2/16", "fd09::2/64")
			calls := "ADD"
			for _, verb := range []string{"CHECK", "GC", "STATUS"} {
				r := n.Run(t, verb, "c1", o)
				if v < since[verb] {
					e := r.Error(t)
					if e.Code != 1 || e.CNIVersion != v {
						t.Errorf("%s: %+v", verb, e)
					}
					has(t, e.Msg, "config version does not allow "+verb)
					continue
				}
				if r.OK(t).Stdout != "" {
					t.Errorf("%s: stdout %q", verb, r.Stdout)
				}
				calls += " " + verb
			}
			if r := n.Run(t, "DEL", "c1", o).OK(t); r.Stdout != "" {
				t.Errorf("DEL: stdout %q", r.Stdout)
			}
			wantCalls(t, n, calls+" DEL")
			wantLeases(t, n)
			o.Conf.Script = Script{"*": fail(123, "own <msg>", "own & details")}
			e := n.Run(t, "ADD", "c1", o).Error(t)
			if e.Code != 123 || e.CNIVersion != v || e.Msg != "own <msg>" || !strings.HasPrefix(e.Details, "own & details") {
				t.Errorf("have %+v", e)
			}
		})
	}
}

// A version that nobody knows: a DEL is for the delegate to judge.
func TestUnknownVersion(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	n.Run(t, "ADD", "c1", ask(nil, nil)).OK(t)
	o := ask(nil, nil)
	o.Conf.Version = "9.9.9"
	if e := n.Run(t, "ADD", "c2", o).Error(t); e.Code != 1 {
		t.Errorf("have %+v", e)
	}
	n.Run(t, "DEL", "c1", o).OK(t)
	wantCalls(t, n, "ADD DEL")
	wantLeases(t, n)
}

func TestVERSIONNeedsNothing(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	n.HoldLock(t, n.LockPath("delegate-fake"), time.Hour)
	for name, stdin := range map[string]string{"nothing": "", "junk": "{junk", "as CRI-O": `{"cniVersion":"0.4.0"}`} {
		r := n.Run(t, "VERSION", "", guardtest.Opts{Stdin: []byte(stdin), Env: []string{"CNI_PATH"}}).OK(t)
		var have struct {
			CNIVersion string
			Supported  []string `json:"supportedVersions"`
		}
		if err := json.Unmarshal([]byte(r.Stdout), &have); err != nil || have.CNIVersion != "1.1.0" || !slices.Equal(have.Supported, versions) {
			t.Errorf("%s: %v in %s", name, err, r.Stdout)
		}
	}
	wantCalls(t, n, "")
}

// An environment that names no attachment, as the reference skeleton has it.
func TestBadEnvironment(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	tests := []struct{ verb, env, says string }{
		{"UPDATE", "X=", "UPDATE"},
		{"ADD", "CNI_CONTAINERID", "CNI_CONTAINERID"},
		{"ADD", "CNI_NETNS=", "CNI_NETNS"},
		{"ADD", "CNI_IFNAME=", "CNI_IFNAME"},
		{"ADD", "CNI_PATH=", "CNI_PATH"},
		{"ADD", "CNI_CONTAINERID=../x", "../x"},
		{"ADD", "CNI_IFNAME=much-too-long-a-name", "interface name"},
		{"CHECK", "CNI_NETNS", "CNI_NETNS"},
		{"DEL", "CNI_IFNAME", "CNI_IFNAME"},
		{"GC", "CNI_PATH", "CNI_PATH"},
		{"STATUS", "CNI_PATH", "CNI_PATH"},
	}
	for _, tt := range tests {
		e := n.Run(t, tt.verb, "c1", guardtest.Opts{Env: []string{tt.env}}).Error(t)
		if e.Code != 4 {
			t.Errorf("%s, %s: %+v", tt.verb, tt.env, e)
		}
		has(t, e.Msg+e.Details, tt.says)
	}
	wantCalls(t, n, "")
}

// CHECK takes no lock and is tried once.
func TestCHECK(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	n.HoldLock(t, n.LockPath("delegate-fake"), time.Hour)
	n.Run(t, "CHECK", "c1", ask(nil, nil)).OK(t)
	e := n.Run(t, "CHECK", "c1", ask(Script{"CHECK": fail(11, "own", "d")}, nil)).Error(t)
	if want := (guardtest.CNIError{CNIVersion: "1.0.0", Code: 11, Msg: "own", Details: "d"}); e != want {
		t.Errorf("have %+v", e)
	}
	r := n.Run(t, "CHECK", "c1", ask(Script{"CHECK": "sleep 1m"}, Object{"timeout": Object{"check": "2s"}}))
	if e := r.Error(t); e.Code != 11 || r.Took < 2*time.Second {
		t.Errorf("have %+v", r)
	}
	has(t, r.Error(t).Msg, "CHECK", "container c1", "timeout of 2s")
	wantCalls(t, n, "CHECK CHECK CHECK")
	if len(n.Calls(t)[0].FDs) > 0 {
		t.Error("CHECK has taken a lock")
	}
}

// STATUS answers within its timeout, whatever is wrong, and takes no lock.
func TestSTATUS(t *testing.T) {
	t.Parallel()
	inTheWay := func(n *guardtest.Node) {
		if err := os.WriteFile(n.LockDir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	programInTheWay := func(n *guardtest.Node) { copyOf(t, n.Bin+"/fake", n.LockDir) }
	tests := map[string]struct {
		script   string
		settings Object
		delegate string
		before   func(*guardtest.Node)
		code     uint // 0: ready
		says     string
	}{
		"ready":                       {},
		"the delegate says no":        {script: fail(51, "pool is small", "d"), code: 51, says: "pool is small"},
		"hung":                        {script: "ignore TERM; sleep 1m", settings: Object{"timeout": Object{"status": "1s"}}, code: 50, says: "timeout of 1s"},
		"died":                        {script: "die KILL", code: 50, says: "signal 9"},
		"junk":                        {script: `print "junk"; exit 1`, code: 50, says: "junk"},
		"no binary":                   {delegate: "gone", code: 50, says: "gone"},
		"no lock folder":              {before: inTheWay, code: 50, says: "lockDir"},
		"a program for a lock folder": {before: programInTheWay, code: 50, says: "lockDir"},
		"no lock folder, no matter":   {before: inTheWay, settings: Object{"lock": Object{"onUnavailable": "proceed"}}},
		"no lock folder, no lock":     {before: inTheWay, settings: Object{"lock": Object{"scope": "none"}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			if tt.before != nil {
				tt.before(n)
			} else {
				n.HoldLock(t, n.LockPath("delegate-fake"), time.Hour)
			}
			o := ask(Script{"STATUS": tt.script}, tt.settings)
			o.Conf.Version = "1.1.0"
			if tt.delegate != "" {
				o.Conf.Delegate = Object{"type": tt.delegate}
			}
			r := n.Run(t, "STATUS", "", o)
			if r.Took > 20*time.Second || r.Held {
				t.Errorf("have %+v", r)
			}
			if tt.code == 0 {
				if r.OK(t).Stdout != "" || len(n.Calls(t, "STATUS")) != 1 {
					t.Errorf("have %+v", r)
				}
				return
			}
			e := r.Error(t)
			if e.Code != tt.code || e.CNIVersion != "1.1.0" {
				t.Errorf("have %+v", e)
			}
			has(t, e.Msg, tt.says)
		})
	}
}

// STATUS's own clock: a delegate that hangs and won't be told is gone before
// the timeout, not a grace period after it.
func TestSTATUSEndsWithinItsTimeout(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	o := ask(Script{"STATUS": "ignore TERM; sleep 1m"}, Object{"timeout": Object{"status": "3s"}, "log": Object{"level": "debug"}})
	o.Conf.Version = "1.1.0"
	n.Run(t, "STATUS", "", o).Error(t)
	line := lastLine(t, n)
	attempt := line["attempts"].([]any)[0].(Object)
	if ms := attempt["ms"].(float64); ms < 2850 || ms > 3700 {
		t.Errorf("the delegate had %v ms", ms)
	}
}

// A GC without a list frees nothing: a delegate like host-local would free
// everything.
func TestGCLists(t *testing.T) {
	t.Parallel()
	attachment := Object{"containerID": "c1", "ifname": "eth0"}
	const key, older = "cni.dev/valid-attachments", "cni.dev/attachments"
	tests := map[string]struct {
		top       Object
		forwarded bool
		leases    []string
	}{
		"none":             {Object{}, false, []string{"c1/eth0", "c2/eth0"}},
		"an object":        {Object{key: Object{"containerID": "c1"}}, false, []string{"c1/eth0", "c2/eth0"}},
		"a string":         {Object{key: "c1"}, false, []string{"c1/eth0", "c2/eth0"}},
		"of strings":       {Object{key: []string{"c1"}}, false, []string{"c1/eth0", "c2/eth0"}},
		"of nameless ones": {Object{key: []any{Object{"ifname": "eth0"}}}, false, []string{"c1/eth0", "c2/eth0"}},
		"null":             {Object{key: json.RawMessage("null")}, false, []string{"c1/eth0", "c2/eth0"}},
		"null, both":       {Object{key: json.RawMessage("null"), older: json.RawMessage("null")}, false, []string{"c1/eth0", "c2/eth0"}},
		"empty":            {Object{key: []any{}}, true, nil},
		"one":              {Object{key: []any{attachment}}, true, []string{"c1/eth0"}},
		"one, under both":  {Object{key: []any{attachment}, older: []any{attachment}}, true, []string{"c1/eth0"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			for _, c := range []string{"c1", "c2"} {
				n.Run(t, "ADD", c, ask(nil, nil)).OK(t)
				n.SetNetns(t, c, "") // gone: what lives is never released
			}
			o := ask(Script{"GC": "gc"}, nil)
			o.Conf.Version, o.Conf.Top = "1.1.0", tt.top
			if r := n.Run(t, "GC", "", o).OK(t); r.Stdout != "" {
				t.Errorf("stdout %q", r.Stdout)
			}
			if have := len(n.Calls(t, "GC")) == 1; have != tt.forwarded {
				t.Errorf("forwarded: %v", have)
			}
			if !tt.forwarded {
				has(t, strings.Join(warnings(lastLine(t, n)), "\n"), "without a list")
			}
			wantLeases(t, n, tt.leases...)
		})
	}
	// The older name alone: a delegate that knows only the present one would see no list, and free everything.
	n := guardtest.New(t)
	o := ask(Script{"GC": ""}, nil)
	o.Conf.Version, o.Conf.Top = "1.1.0", Object{older: []any{attachment}}
	n.Run(t, "GC", "", o).OK(t)
	for _, name := range []string{older, key} {
		has(t, n.Calls(t, "GC")[0].Stdin, fmt.Sprintf(`%q:[{"containerID":"c1","ifname":"eth0"}]`, name))
	}
}

// GC's other settings, its errors, and its clock.
func TestGC(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	o := ask(Script{"GC": fail(100, "own", "d")}, nil)
	o.Conf.Version, o.Conf.Top = "1.1.0", Object{"cni.dev/valid-attachments": []any{}}
	want := guardtest.CNIError{CNIVersion: "1.1.0", Code: 100, Msg: "own", Details: "d"}
	if e := n.Run(t, "GC", "", o).Error(t); e != want {
		t.Errorf("have %+v", e)
	}
	if paths := inherited(n.Calls(t)[0]); !slices.Equal(paths, []string{n.LockPath("delegate-fake")}) {
		t.Errorf("inherited %v", paths)
	}
	for _, how := range []string{"own", "off"} {
		o.Conf.Guard = Object{"gc": how}
		n.Run(t, "GC", "", o).OK(t)
	}
	wantCalls(t, n, "GC")
	o.Conf.Script, o.Conf.Guard = Script{"GC": "sleep 1m"}, Object{"timeout": Object{"gc": "500ms"}}
	e := n.Run(t, "GC", "", o).Error(t)
	if e.Code != 11 {
		t.Errorf("have %+v", e)
	}
	has(t, e.Msg, "GC", "network testnet", "timeout of 500ms")
}
