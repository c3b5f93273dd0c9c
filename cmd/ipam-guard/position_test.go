package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// shadow puts the guard in front of the delegate under its own name, in a folder
// that comes earlier in CNI_PATH, and returns a call that meets it first.
func shadow(t *testing.T, n *guardtest.Node, script Script) guardtest.Opts {
	t.Helper()
	path := n.Install(t, n.Guard(), "first", "fake")
	return guardtest.Opts{
		Binary: path, Path: filepath.Dir(path) + ":" + n.Bin,
		Conf: guardtest.Conf{Position: guardtest.Bare, Script: script},
	}
}

func asPlugin(script Script, settings Object) guardtest.Opts {
	o := ask(script, settings)
	o.Conf.Position = guardtest.Plugin
	return o
}

// In every position: the record, the lock, the retry, the replay, and the log
// that says which it is.
func TestEveryPositionGuards(t *testing.T) {
	t.Parallel()
	for position, opts := range map[string]func(*testing.T, *guardtest.Node) guardtest.Opts{
		"ipam":   func(*testing.T, *guardtest.Node) guardtest.Opts { return ask(nil, nil) },
		"plugin": func(*testing.T, *guardtest.Node) guardtest.Opts { return asPlugin(nil, nil) },
		"shadow": func(t *testing.T, n *guardtest.Node) guardtest.Opts { return shadow(t, n, nil) },
	} {
		t.Run(position, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			o := opts(t, n)
			n.SetNodeFile(t, Object{"defaults": Object{"retry": Object{"backoff": "1ms", "attempts": 2}, "policy": Object{"onError": "defer"}}})
			n.Run(t, "ADD", "c1", o).OK(t)
			wantLeases(t, n, "c1/eth0")
			wantStates(t, n, "c1/eth0 attached")

			n.SetScript(t, Script{"DEL": fail(11, "busy")})
			n.Run(t, "DEL", "c1", o).OK(t)
			line := lastLine(t, n)
			if line["position"] != position || line["verdict"] != "defer" || len(line["attempts"].([]any)) != 2 || line["lock"] != n.LockPath("delegate-fake") {
				t.Errorf("logged %v", line)
			}
			wantLeases(t, n, "c1/eth0")
			wantStates(t, n, "c1/eth0 releasing now")

			n.SetScript(t, nil)
			n.Run(t, "ADD", "c2", o).OK(t)
			n.Run(t, "DEL", "c2", o).OK(t)
			wantLeases(t, n)
			wantStates(t, n)
			n.NoOverlap(t)
		})
	}
}

// What a whole plugin gets: the outer members, its own in the place of
// `delegate`, nothing of the guard's; where both have one, the outer.
func TestPluginGetsItsOwnNetconf(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	o := guardtest.Opts{Stdin: []byte(`{ "cniVersion":"1.0.0", "name":"testnet","type" : "ipam-guard",
  "capabilities": {"portMappings": true}, "delegate": {"type": "fake", "capabilities": {"portMappings": false}, "big": 9007199254740993,
    "delegate": {"hairpinMode": true}, "ipam": {"type":"x", "a" : [1,2]}},
  "guard":{"timeout": "3s", "deadline": {"add": "20s"}}, "runtimeConfig": {"portMappings": []} }`)}
	n.Run(t, "ADD", "c1", o).OK(t)
	want := `{ "cniVersion":"1.0.0", "name":"testnet","type" : "fake",
  "capabilities": {"portMappings": true}, "big": 9007199254740993,
    "delegate": {"hairpinMode": true}, "ipam": {"type":"x", "a" : [1,2]}, "runtimeConfig": {"portMappings": []} }`
	if have := n.Calls(t)[0].Stdin; have != want {
		t.Errorf("have %s\nwant %s", have, want)
	}
}

// A whole plugin's result may have no address: a chained one, or one for layer 2.
func TestPluginWithoutAddress(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	result := `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0"}]}`
	if r := n.Run(t, "ADD", "c1", asPlugin(Script{"ADD": "print " + quoted(result)}, nil)).OK(t); r.Stdout != result {
		t.Errorf("have %s", r.Stdout)
	}
	e := n.Run(t, "ADD", "c2", ask(Script{"ADD": "print " + quoted(result)}, nil)).Error(t)
	has(t, e.Msg, "no address")
}

func quoted(text string) string {
	b, _ := json.Marshal(text)
	return string(b)
}

// Bad configurations say where, in either place.
func TestBadPluginNetconf(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ stdin, want string }{
		"no delegate":       {`{"cniVersion":"1.0.0","name":"n","type":"ipam-guard"}`, "delegate"},
		"not an object":     {`{"cniVersion":"1.0.0","name":"n","type":"ipam-guard","delegate":[1]}`, "delegate: [1]"},
		"no type":           {`{"cniVersion":"1.0.0","name":"n","type":"ipam-guard","delegate":{"bridge":"x"}}`, "delegate.type"},
		"a path":            {`{"cniVersion":"1.0.0","name":"n","type":"ipam-guard","delegate":{"type":"../x"}}`, `delegate.type: "../x"`},
		"itself":            {`{"cniVersion":"1.0.0","name":"n","type":"ipam-guard","delegate":{"type":"ipam-guard"}}`, "not the guard itself"},
		"a key twice":       {`{"cniVersion":"1.0.0","name":"n","type":"ipam-guard","delegate":{"type":"fake","Type":"x"}}`, "delegate.Type: occurs twice"},
		"a key twice above": {`{"cniVersion":"1.0.0","name":"n","type":"ipam-guard","NAME":"m","delegate":{"type":"fake"}}`, "NAME: occurs twice"},
		"a bad setting":     {`{"cniVersion":"1.0.0","name":"n","type":"ipam-guard","delegate":{"type":"fake"},"guard":{"mode":"x"}}`, `guard.mode: "x"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			e := n.Run(t, "ADD", "c1", guardtest.Opts{Stdin: []byte(tt.stdin)}).Error(t)
			if e.Code != 7 {
				t.Errorf("have %+v", e)
			}
			has(t, e.Msg, tt.want)
			wantCalls(t, n, "")
		})
	}
}

// The runtime calls with type alone, since the conflist has changed: a DEL goes
// by its record.
func TestPluginDELWithoutDelegate(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	n.Run(t, "ADD", "c1", asPlugin(nil, nil)).OK(t)
	n.Run(t, "DEL", "c1", guardtest.Opts{Stdin: []byte(`{"cniVersion":"1.0.0","name":"testnet","type":"ipam-guard"}`)}).OK(t)
	wantLeases(t, n)
	wantStates(t, n)
}

// Case 62: guards around guards, and two in one list: keys don't collide, nothing
// hangs, though all would have the one lock.
func TestGuardsTogether(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	n.SetNodeFile(t, Object{"defaults": Object{"lock": Object{"name": "shared"}}})
	// The main plugin runs its IPAM plugin, as bridge does: the guard again.
	main := "#!/bin/sh\nexec " + n.Guard() + "\n"
	if err := os.WriteFile(filepath.Join(n.Bin, "main"), []byte(main), 0o755); err != nil {
		t.Fatal(err)
	}
	inner := Object{"type": "ipam-guard", "delegate": Object{"type": "fake", "dir": n.FakeDir}}
	around := asPlugin(nil, nil)
	around.Conf.Delegate = Object{"type": "main", "dir": nil, "ipam": inner}
	second := asPlugin(nil, nil)
	second.Conf.Delegate = Object{"type": "chained", "dir": n.FakeDir}
	second.Conf.Script = Script{"ADD": "print " + quoted(`{"cniVersion":"1.0.0"}`), "DEL": ""}
	n.Install(t, guardtest.Build(t, guardtest.Fake), "bin", "chained")

	n.Run(t, "ADD", "c1", around).OK(t)
	n.Run(t, "ADD", "c1", second).OK(t)
	wantLeases(t, n, "c1/eth0")
	wantStates(t, n, "c1/eth0 attached", "c1/eth0 attached")
	n.Run(t, "DEL", "c1", second).OK(t)
	wantLeases(t, n, "c1/eth0")
	n.Run(t, "DEL", "c1", around).OK(t)
	wantLeases(t, n)
	wantStates(t, n)
	var below int
	for _, line := range n.Log(t) {
		if line["verdict"] == "below" {
			below++
			if line["lock"] != nil {
				t.Errorf("the inner guard took a lock: %v", line)
			}
		}
	}
	if below != 2 {
		t.Errorf("%d calls below another guard, want the ADD and the DEL of the inner one", below)
	}
}

// Case 10, by a shadow: the netconf's guard meets a shadow, a shadow meets a copy
// of itself and one of another version. The outermost guards, each of the others
// runs the next, nobody runs itself or the first again.
func TestShadows(t *testing.T) {
	t.Parallel()
	other := "-X main.version=other"
	for name, tt := range map[string]struct {
		lay   func(t *testing.T, n *guardtest.Node) guardtest.Opts
		lines int // of the log, for one call
	}{
		"alone": {func(t *testing.T, n *guardtest.Node) guardtest.Opts { return shadow(t, n, nil) }, 1},
		"hard link behind it": {func(t *testing.T, n *guardtest.Node) guardtest.Opts {
			o := shadow(t, n, nil)
			o.Path = filepath.Dir(o.Binary) + ":" + filepath.Dir(n.Install(t, n.Guard(), "second", "fake")) + ":" + n.Bin
			return o
		}, 1},
		"copy behind it": {func(t *testing.T, n *guardtest.Node) guardtest.Opts {
			o := shadow(t, n, nil)
			second := filepath.Join(n.Dir, "second")
			mustDo(t, os.Mkdir(second, 0o755))
			copyOf(t, n.Guard(), second+"/fake")
			o.Path = filepath.Dir(o.Binary) + ":" + second + ":" + n.Bin
			return o
		}, 1},
		"other version behind it": {func(t *testing.T, n *guardtest.Node) guardtest.Opts {
			o := shadow(t, n, nil)
			second := filepath.Dir(n.Install(t, guardtest.Build(t, guardtest.Guard, other), "second", "fake"))
			o.Path = filepath.Dir(o.Binary) + ":" + second + ":" + n.Bin
			return o
		}, 2},
		"folder listed twice, other version before and behind": {func(t *testing.T, n *guardtest.Node) guardtest.Opts {
			o := shadow(t, n, nil)
			second := filepath.Dir(n.Install(t, guardtest.Build(t, guardtest.Guard, other), "second", "fake"))
			o.Path = strings.Join([]string{second, filepath.Dir(o.Binary), second, filepath.Dir(o.Binary), second, n.Bin}, ":")
			return o
		}, 2},
		"netconf around it": {func(t *testing.T, n *guardtest.Node) guardtest.Opts {
			o := ask(nil, nil)
			o.Path = shadow(t, n, nil).Path
			return o
		}, 2},
		"symbolic link": {func(t *testing.T, n *guardtest.Node) guardtest.Opts {
			o := shadow(t, n, nil)
			mustDo(t, os.Remove(o.Binary))
			mustDo(t, os.Symlink(n.Guard(), o.Binary))
			return o
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			n.SetNodeFile(t, Object{"defaults": Object{"lock": Object{"name": "shared"}}})
			o := tt.lay(t, n)
			n.Run(t, "ADD", "c1", o).OK(t)
			if lines := n.Log(t); len(lines) != tt.lines {
				t.Errorf("%d guards ran, want %d: %v", len(lines), tt.lines, lines)
			}
			wantLeases(t, n, "c1/eth0")
			n.Run(t, "DEL", "c1", o).OK(t)
			wantLeases(t, n)
			wantStates(t, n)
			wantCalls(t, n, "ADD DEL")
		})
	}
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Case 10, an upgrade by rename while one runs: it goes on with what it found,
// and finds no guard where it was.
func TestUpgradeWhileAShadowWaits(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	o := shadow(t, n, nil)
	n.Run(t, "ADD", "c0", o).OK(t)
	n.SetScript(t, Script{"ADD": "waitfile go; alloc"})
	holder := n.Start(t, "ADD", "c1", o)
	n.AwaitCalls(t, "ADD", 2)
	waiter := n.Start(t, "ADD", "c2", o)
	awaitQueue(t, waiter, n.LockPath("delegate-fake"))
	next := guardtest.Build(t, guardtest.Guard, "-X main.version=next")
	mustDo(t, os.Rename(n.Install(t, next, "upgrade", "fake"), o.Binary))
	n.Touch(t, "go")
	holder.Wait(t).OK(t)
	waiter.Wait(t).OK(t)
	n.SetScript(t, nil)
	for _, c := range []string{"c0", "c1", "c2"} {
		n.Run(t, "DEL", c, o).OK(t)
	}
	wantLeases(t, n)
	wantStates(t, n)
	if v := lastLine(t, n)["version"]; v != "next" {
		t.Errorf("the DELs were done by version %v", v)
	}
	wantCalls(t, n, "ADD ADD ADD DEL DEL DEL")
}

// What a shadow has nothing to add to, it answers as its delegate does.
func TestShadowAnswersAsItsDelegate(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	o := shadow(t, n, Script{"CHECK": fail(999, "not implemented"), "STATUS": fail(50, "no")})
	direct := bare(n, o.Conf.Script)
	n.SetScript(t, Script{"VERSION": "print " + quoted(`{"cniVersion":"0.4.0","supportedVersions":["0.3.1","0.4.0"]}`), "CHECK": fail(999, "not implemented"), "STATUS": fail(50, "no"), "GC": ""})
	for _, verb := range []string{"VERSION", "CHECK", "STATUS", "GC"} {
		for _, version := range []string{"1.1.0", "0.4.0"} {
			o.Conf.Version, direct.Conf.Version = version, version
			have, want := n.Run(t, verb, "c1", o), n.Run(t, verb, "c1", direct)
			if have.RC != want.RC || said(have.Stdout) != said(want.Stdout) {
				t.Errorf("%s at %s: have %d %s, bare %d %s", verb, version, have.RC, have.Stdout, want.RC, want.Stdout)
			}
		}
	}
	// As libcni asks: there is no such folder.
	o.Path = "dummy"
	has(t, n.Run(t, "VERSION", "", o).OK(t).Stdout, `"1.1.0"`)
	e := n.Run(t, "ADD", "c1", o).Error(t)
	has(t, e.Msg, "no delegate", "fake")
}

// said is what a plugin printed, an error object without the cniVersion that the
// fake leaves out.
func said(text string) string {
	var e struct {
		Code uint
		Msg  string
	}
	if json.Unmarshal([]byte(text), &e) == nil && e.Code != 0 {
		return fmt.Sprint(e)
	}
	return text
}
