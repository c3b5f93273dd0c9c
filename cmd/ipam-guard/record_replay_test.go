package main_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// rewrite changes a file in its place, as if its writer had.
func rewrite(t testing.TB, path string, change func(string) string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte(change(string(text))), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// anyNetns puts a file where the container's netns would be: what counts is the
// path and which file it leads to.
func anyNetns(t testing.TB, n *guardtest.Node, container, name string) {
	t.Helper()
	file := filepath.Join(n.Dir, name)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.SetNetns(t, container, file)
}

// Case 59: macvlan's order. The IPAM DEL comes first and fails, so that the
// interface stays. No other call may release the address while the netns is
// there; once it is gone, the next one must.
func TestNoReplayWhileTheNetnsIsThere(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, n *guardtest.Node) (gone func()){
		"the path is missing": func(t *testing.T, n *guardtest.Node) func() {
			anyNetns(t, n, "c1", "ns")
			return func() { n.SetNetns(t, "c1", "") }
		},
		"the path leads elsewhere": func(t *testing.T, n *guardtest.Node) func() {
			anyNetns(t, n, "c1", "ns")
			return func() { anyNetns(t, n, "c1", "ns2") }
		},
		"the runtime says so": func(t *testing.T, n *guardtest.Node) func() {
			anyNetns(t, n, "c1", "ns")
			return func() {
				n.SetScript(t, broken)
				n.Run(t, "DEL", "c1", guardtest.Opts{Env: []string{"CNI_NETNS="}}).Error(t)
				n.SetScript(t, nil)
			}
		},
		"the process in it has ended": func(t *testing.T, n *guardtest.Node) func() {
			ns, end := n.NewNetns(t)
			n.SetNetns(t, "c1", ns)
			return end
		},
	}
	for name, begin := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			gone := begin(t, n)
			owe(t, n, "c1", ask(nil, nil))
			come(t, n, "c2", "c3", "c2")
			n.Run(t, "GC", "", gcOf("c1")).OK(t)
			wantLeases(t, n, "c1/eth0")
			wantStates(t, n, "c1/eth0 releasing netns")
			if have := len(callsOf(t, n, "DEL", "c1")); have != 1 {
				t.Fatalf("%d DELs of c1 while its netns was there", have)
			}
			gone()
			come(t, n, "c4")
			wantLeases(t, n)
			wantStates(t, n)
			n.NoOverlap(t)
		})
	}
}

// Case 59, the other way round: the same for a DEL whose guard was killed, and
// for a netns that can't be judged: the one who sees no such path may be in the
// wrong mount namespace.
func TestNoReplayWhereTheNetnsIsUnknown(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	n.Run(t, "ADD", "killed", ask(nil, nil)).OK(t)
	n.SetScript(t, Script{"DEL": "waitfile never"})
	p := n.Start(t, "DEL", "killed", ask(nil, nil))
	n.AwaitCalls(t, "DEL", 1)
	p.Kill()
	p.Wait(t)
	n.SetScript(t, nil)
	owe(t, n, "elsewhere", ask(nil, nil))
	rewrite(t, recordFile(t, n, "elsewhere"), func(text string) string {
		netns := `{"netns":{"mntns":1}}` + "\n"
		return text + netns
	})
	n.SetNetns(t, "elsewhere", "")
	come(t, n, "c1", "c2", "c3")
	wantLeases(t, n, "elsewhere/eth0", "killed/eth0")
	wantStates(t, n, "elsewhere/eth0 releasing netns", "killed/eth0 releasing netns")
	n.SetNetns(t, "killed", "")
	come(t, n, "c1", "c2", "c3")
	wantLeases(t, n, "elsewhere/eth0")
	// The DEL of its key needs no proof.
	n.Run(t, "DEL", "elsewhere", ask(nil, nil)).OK(t)
	wantLeases(t, n)
	wantStates(t, n)
}

// Case 66: another network's guard replays a record. All comes from the record,
// nothing from the call that happens to be there.
func TestReplayGoesByTheRecord(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	n.Install(t, guardtest.Build(t, guardtest.Fake), "bin2", "fake")
	theirs := ask(nil, Object{"lock": Object{"scope": "network"}, "timeout": Object{"del": "1s"}, "retry": Object{"attempts": 1}})
	theirs.Conf.Name, theirs.IfName, theirs.Args, theirs.Path = "theirs", "net7", "K8S_POD_NAME=a;IgnoreUnknown=1", n.Dir+"/bin2:"+n.Bin
	theirs.Env = []string{"CNI_CUSTOM=theirs"}
	owe(t, n, "c1", theirs)
	n.SetNetns(t, "c1", "")
	ours := ask(nil, nil)
	ours.Conf.Name, ours.IfName, ours.Args = "ours", "eth0", "K8S_POD_NAME=b"
	ours.Conf.Top = Object{"runtimeConfig": Object{"ours": true}, "prevResult": Object{"cniVersion": "1.0.0", "dns": Object{"domain": "ours"}}}
	ours.Env = []string{"CNI_CUSTOM=ours", "TRACEPARENT=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}

	// Its lock isn't queued for.
	release := n.HoldLock(t, n.LockPath("network-theirs"), time.Hour)
	n.Run(t, "DEL", "c2", ours).OK(t)
	wantLeases(t, n, "c1/net7")
	if len(callsOf(t, n, "DEL", "c1")) != 1 {
		t.Error("a replay without the record's lock")
	}
	release()

	// Its timeout holds, and that it fails is no news for the caller.
	n.SetScript(t, Script{"DEL": []string{"free", "sleep 1h"}})
	if r := n.Run(t, "DEL", "c2", ours).OK(t); r.Took < time.Second || r.Took > 15*time.Second || r.Stdout != "" {
		t.Errorf("have %+v", r)
	}
	n.SetScript(t, nil)
	wantLeases(t, n, "c1/net7")
	guardtest.Eventually(t, "the end of its backoff", func() bool {
		n.Run(t, "DEL", "c2", ours).OK(t)
		return len(n.Leases(t)) == 0
	})
	wantStates(t, n)

	replays := past(t, 1, callsOf(t, n, "DEL", "c1"))
	if len(replays) != 2 {
		t.Errorf("%d replays", len(replays))
	}
	for _, c := range replays {
		if c.IfName != "net7" || c.Args != theirs.Args || c.Path != theirs.Path || c.Netns != "" {
			t.Errorf("have %+v", c)
		}
		if have := inherited(c); !slices.Equal(have, []string{n.LockPath("network-theirs")}) {
			t.Errorf("inherited %v", have)
		}
		env := strings.Join(c.Env, "\n")
		has(t, env+"\n", "CNI_COMMAND=DEL\n", "CNI_NETNS=\n", "IPAM_GUARD_ABOVE=")
		for _, foreign := range []string{"CNI_CUSTOM", "TRACEPARENT", "=b"} {
			if strings.Contains(env, foreign) {
				t.Errorf("%q in %s", foreign, env)
			}
		}
		has(t, c.Stdin, `"name":"theirs"`, `"prevResult":{`, "10.9.0.2/16")
		if strings.Contains(c.Stdin, "ours") {
			t.Errorf("stdin %s", c.Stdin)
		}
	}
}

// Case 71: what the administrator has corrected meanwhile, a timeout or a lock,
// holds for the replay of older records too.
func TestCorrectedSettingsHoldForOlderRecords(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	admin := func(settings Object) { n.SetNodeFile(t, Object{"delegates": Object{"fake": settings}}) }
	admin(Object{"timeout": Object{"del": "2s"}, "retry": Object{"attempts": 1}})
	n.Run(t, "ADD", "c1", ask(nil, nil)).OK(t)
	n.SetScript(t, Script{"DEL": "sleep 3s; free"})
	has(t, n.Run(t, "DEL", "c1", ask(nil, nil)).Error(t).Msg, "timeout of 2s")
	n.SetNetns(t, "c1", "")

	admin(Object{"timeout": Object{"del": "15s"}, "lock": Object{"name": "shared"}})
	n.Run(t, "DEL", "other", ask(nil, nil)).OK(t)
	wantLeases(t, n)
	wantStates(t, n)
	dels := past(t, 0, callsOf(t, n, "DEL", "c1"))
	if have := inherited(dels[len(dels)-1]); len(dels) != 2 || !slices.Equal(have, []string{n.LockPath("name-shared")}) {
		t.Errorf("%d DELs, the last with %v", len(dels), have)
	}
}
