package guardtest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

func TestMain(m *testing.M) { guardtest.Main(m) }

// witness is a test whose failure is a result.
type witness struct {
	testing.TB
	said string
}

func (w *witness) Helper()                   {}
func (w *witness) Errorf(f string, a ...any) { w.said += fmt.Sprintf(f, a...) }
func (w *witness) Fatalf(f string, a ...any) { w.Errorf(f, a...); runtime.Goexit() }
func (w *witness) Fatal(a ...any)            { w.Fatalf("%s", fmt.Sprint(a...)) }

// failure runs a check and returns how it failed, or "".
func failure(t *testing.T, check func(testing.TB)) string {
	w := &witness{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		check(w)
	}()
	<-done
	return w.said
}

func direct(n *guardtest.Node, script guardtest.Script) guardtest.Opts {
	return guardtest.Opts{Binary: n.Bin + "/fake", Conf: guardtest.Conf{Position: guardtest.Bare, Script: script}}
}

func TestBuildTellsWhatTheCompilerSaid(t *testing.T) {
	said := failure(t, func(tb testing.TB) { guardtest.Build(tb, "github.com/ipam-guard/ipam-guard/no/such/package") })
	if !strings.Contains(said, "no/such/package") {
		t.Errorf("have %q", said)
	}
}

// Each node has a file of its own, though the path is linked in.
func TestNodeFile(t *testing.T) {
	t.Parallel()
	binary := guardtest.Build(t, "github.com/ipam-guard/ipam-guard/internal/guardtest/testdata/standin")
	a, b := guardtest.New(t), guardtest.New(t)
	a.SetNodeFile(t, "{junk")
	b.SetNodeFile(t, guardtest.Object{"defaults": guardtest.Object{"mode": "bypass", "stateDir": "/else", "log": guardtest.Object{"level": "debug"}}})
	if r := a.Run(t, "DEL", "c1", guardtest.Opts{Binary: binary}).OK(t); r.Stdout != "{junk" {
		t.Errorf("have %q", r.Stdout)
	}
	var have struct{ Defaults map[string]any }
	out := b.Run(t, "DEL", "c1", guardtest.Opts{Binary: binary}).OK(t).Stdout
	if err := json.Unmarshal([]byte(out), &have); err != nil {
		t.Fatal(err)
	}
	log, _ := have.Defaults["log"].(map[string]any)
	if have.Defaults["mode"] != "bypass" || have.Defaults["stateDir"] != "/else" || have.Defaults["lockDir"] != b.LockDir || log["level"] != "debug" || log["file"] != b.LogFile {
		t.Errorf("have %s", out)
	}
}

func TestNetconf(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	tests := map[string]struct {
		conf guardtest.Conf
		want string
	}{
		"ipam": {guardtest.Conf{
			Script: guardtest.Script{"ADD": "alloc"}, IPAM: guardtest.Object{"routes": 1}, Top: guardtest.Object{"prevResult": nil},
			Guard: guardtest.Object{"stateDir": nil, "log": guardtest.Object{"level": "debug"}, "mode": "guard"},
		}, `{"cniVersion":"1.0.0","ipam":{"delegate":{"dir":"FAKE","script":{"ADD":"alloc"},"type":"fake"},` +
			`"guard":{"lockDir":"LOCK","log":{"file":"LOG","level":"debug"},"mode":"guard"},"routes":1,"type":"ipam-guard"},` +
			`"name":"testnet","type":"bridge"}`},
		"plugin": {guardtest.Conf{Position: guardtest.Plugin, Version: "0.4.0", Name: "x", Delegate: guardtest.Object{"dir": "d"}},
			`{"cniVersion":"0.4.0","delegate":{"dir":"d","type":"fake"},` +
				`"guard":{"lockDir":"LOCK","log":{"file":"LOG"},"stateDir":"STATE"},"name":"x","type":"ipam-guard"}`},
		"bare": {guardtest.Conf{Position: guardtest.Bare},
			`{"cniVersion":"1.0.0","ipam":{"dir":"FAKE","type":"fake"},"name":"testnet","type":"bridge"}`},
	}
	for name, tt := range tests {
		r := strings.NewReplacer("FAKE", n.FakeDir, "LOCK", n.LockDir, "STATE", n.StateDir, "LOG", n.LogFile)
		if have, want := string(n.Netconf(tt.conf)), r.Replace(tt.want); have != want {
			t.Errorf("%s:\nhave %s\nwant %s", name, have, want)
		}
	}
}

func TestErrorIsStrict(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	const good = `{"cniVersion":"1.0.0","code":11,"msg":"m","details":"d"}`
	tests := map[string]struct {
		body string
		ok   bool
	}{
		"good":          {"echo '" + good + "'; exit 1", true},
		"exit 0":        {"echo '" + good + "'", false},
		"a signal":      {"echo '" + good + "'; kill -9 $$", false},
		"twice":         {"echo '" + good + good + "'; exit 1", false},
		"words before":  {"echo 'oh " + good + "'; exit 1", false},
		"words after":   {"echo '" + good + " oh'; exit 1", false},
		"no cniVersion": {`echo '{"code":11,"msg":"m"}'; exit 1`, false},
		"no code":       {`echo '{"cniVersion":"1.0.0","msg":"m"}'; exit 1`, false},
		"other keys":    {`echo '{"cniVersion":"1.0.0","code":11,"msg":"m","ips":[]}'; exit 1`, false},
		"nothing":       {"exit 1", false},
	}
	for name, tt := range tests {
		r := n.Run(t, "ADD", "c1", guardtest.Opts{Binary: n.InstallScript(t, "standin", tt.body)})
		var e guardtest.CNIError
		said := failure(t, func(tb testing.TB) { e = r.Error(tb) })
		if (said == "") != tt.ok {
			t.Errorf("%s: said %q", name, said)
		}
		if tt.ok && (e != guardtest.CNIError{CNIVersion: "1.0.0", Code: 11, Msg: "m", Details: "d"}) {
			t.Errorf("%s: have %+v", name, e)
		}
	}
}

func TestNoOverlapAndCallsFail(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	first := n.Start(t, "ADD", "c1", direct(n, guardtest.Script{"ADD": "waitfile go"}))
	n.AwaitCalls(t, "ADD", 1)
	n.Run(t, "DEL", "c1", direct(n, nil)).OK(t)
	n.Touch(t, "go")
	first.Wait(t).OK(t)
	if said := failure(t, func(tb testing.TB) { n.NoOverlap(tb) }); !strings.Contains(said, "call 2, DEL of c1") {
		t.Errorf("NoOverlap said %q", said)
	}

	broken := guardtest.New(&quiet{TB: t})
	broken.Run(t, "ADD", "c1", direct(broken, guardtest.Script{"ADD": "allok"}))
	if said := failure(t, func(tb testing.TB) { broken.Calls(tb) }); !strings.Contains(said, "allok") {
		t.Errorf("Calls said %q", said)
	}
}

// quiet swallows what the node says at its end.
type quiet struct{ testing.TB }

func (quiet) Errorf(string, ...any) {}

func TestHoldLock(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	path := n.LockPath("delegate-fake")
	try := func() error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	release := n.HoldLock(t, path, time.Hour)
	if err := try(); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("held, but: %v", err)
	}
	release()
	release()
	if err := try(); err != nil {
		t.Errorf("released, but: %v", err)
	}
	n.HoldLock(t, path, 100*time.Millisecond)
	guardtest.Eventually(t, "the end of the lock", func() bool { return try() == nil })
}

func TestNetns(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	ino := func(path string) uint64 {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return 0
		}
		return st.Ino
	}
	n.Run(t, "DEL", "c1", direct(n, nil)).OK(t)
	if ino(n.Netns("c1")) != 0 {
		t.Error("a DEL has made a netns")
	}
	n.Run(t, "ADD", "c1", direct(n, nil)).OK(t)
	own := ino("/proc/self/ns/net")
	if have := n.Calls(t, "ADD")[0].Netns; have != n.Netns("c1") || ino(have) != own {
		t.Errorf("CNI_NETNS %s, inode %d, want %d", have, ino(have), own)
	}
	n.SetNetns(t, "c1", "")
	if ino(n.Netns("c1")) != 0 {
		t.Error("the netns is still there")
	}
	n.Run(t, "DEL", "c1", guardtest.Opts{Binary: n.Bin + "/fake", Env: []string{"CNI_NETNS"}})
	n.Run(t, "DEL", "c1", guardtest.Opts{Binary: n.Bin + "/fake", Env: []string{"CNI_NETNS="}})
	calls := n.Calls(t, "DEL")
	if has(calls[1].Env, "CNI_NETNS") || !slices.Contains(calls[2].Env, "CNI_NETNS=") {
		t.Errorf("environments %q and %q", calls[1].Env, calls[2].Env)
	}
}

func has(env []string, key string) bool {
	return slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, key+"=") })
}

func TestNewNetns(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	path, end := n.NewNetns(t)
	n.SetNetns(t, "c1", path)
	own, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.Stat(n.Netns("c1"))
	if err != nil || os.SameFile(own, other) {
		t.Errorf("not another netns: %v", err)
	}
	end()
	if _, err := os.Stat(n.Netns("c1")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after its end: %v", err)
	}
}

func TestRuntimeInBetween(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	o := direct(n, guardtest.Script{"ADD": "waitfile go; alloc; exit 5"})
	o.Runtime = true
	p := n.Start(t, "ADD", "c1", o)
	n.AwaitCalls(t, "ADD", 1)
	pid := p.PluginPid(t)
	if c := n.Calls(t)[0]; c.PID != pid || c.PPID != p.Pid {
		t.Errorf("plugin %d under %d, want %d under %d", c.PID, c.PPID, pid, p.Pid)
	}
	p.Kill()
	if r := p.Wait(t); r.Signal != syscall.SIGKILL || !r.Held || !guardtest.Alive(pid) {
		t.Errorf("alive %v after %+v", guardtest.Alive(pid), r)
	}
	n.Touch(t, "go")
	guardtest.Eventually(t, "end of the plugin", func() bool { return !guardtest.Alive(pid) })

	p = n.Start(t, "ADD", "c2", o)
	if r := p.Wait(t); r.RC != 5 || r.Held || r.MaxRSSKB == 0 {
		t.Errorf("have %+v", r)
	}
}

func TestCloseOutput(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	p := n.Start(t, "ADD", "c1", direct(n, guardtest.Script{"ADD": "waitfile go; alloc"}))
	n.AwaitCalls(t, "ADD", 1)
	p.CloseOutput()
	n.Touch(t, "go")
	if r := p.Wait(t); r.Signal != syscall.SIGPIPE {
		t.Errorf("have %+v", r)
	}
}

// What a test leaves running ends with it.
func TestCleanUp(t *testing.T) {
	t.Parallel()
	var pids []int
	t.Run("leave much behind", func(t *testing.T) {
		n := guardtest.New(t)
		n.Run(t, "ADD", "c1", direct(n, guardtest.Script{"ADD": "alloc; fork 1h; daemon 1h"})).OK(t)
		p := n.Start(t, "DEL", "c1", direct(n, guardtest.Script{"DEL": "waitfile never"}))
		script := n.Start(t, "DEL", "c1", guardtest.Opts{Binary: n.InstallScript(t, "sh", "sleep 3600")})
		pids = append(n.Pids(t), p.Pid, script.Pid)
		n.AwaitCalls(t, "DEL", 1)
	})
	if len(pids) != 4 {
		t.Fatalf("have %v", pids)
	}
	for _, pid := range pids {
		guardtest.Eventually(t, "death", func() bool { return !guardtest.Alive(pid) })
	}
}

func TestAliveIsNotAZombie(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	cmd := exec.Command(n.Bin+"/fake", "hold", "1h")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	if !guardtest.Alive(pid) {
		t.Error("not alive at first")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	guardtest.Eventually(t, "death", func() bool { return !guardtest.Alive(pid) })
	if err := unix.Kill(pid, 0); err != nil {
		t.Errorf("reaped already, this proves nothing: %v", err)
	}
	_ = cmd.Wait()
}

func TestAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	t.Parallel()
	n := guardtest.New(t)
	n.Open(t)
	o := direct(n, nil)
	o.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	n.Run(t, "ADD", "c1", o).OK(t)
	st, err := os.Stat(filepath.Join(n.FakeDir, "leases", "10.9.0.2"))
	if err != nil {
		t.Fatal(err)
	}
	if uid := st.Sys().(*syscall.Stat_t).Uid; uid != 65534 {
		t.Errorf("the lease belongs to %d", uid)
	}
}

func TestBuildOfAModule(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	n.Install(t, guardtest.Build(t, guardtest.HostLocal), "bin", "host-local")
	o := guardtest.Opts{Binary: n.Bin + "/host-local", Conf: guardtest.Conf{Position: guardtest.Bare, Delegate: guardtest.Object{
		"type": "host-local", "dir": nil, "dataDir": n.Dir + "/data", "subnet": "10.1.0.0/24",
	}}}
	if ips := n.Run(t, "ADD", "c1", o).IPs(t); !slices.Equal(ips, []string{"10.1.0.2"}) {
		t.Errorf("have %v", ips)
	}
}
