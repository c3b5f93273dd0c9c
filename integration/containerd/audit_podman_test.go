//go:build results

package containerd_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ipam-guard/ipam-guard/integration/internal/podman"
	"github.com/ipam-guard/ipam-guard/integration/internal/trial"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// stayer is a container of podman that does not come and go.
type stayer struct {
	*podman.Container
	id, netns, address string
	conmon, pid        string // in the jail
	gone               bool   // no interface has the address
}

// planted are podman's containers in all the conditions in which they may be
// found. No runtime lists any of them.
type planted struct {
	lives     *stayer
	again     *stayer // lives; started again while no guard was there, it has a record of before and another address
	forgotten *stayer // lives; its record is lost, its reservation an hour old
	killed    *stayer // its processes are killed; podman, the guard and the kernel have it all still
	kept      *stayer // so, and the name of its netns is gone for long; a process of others lives in there
	recent    *stayer // killed, its netns gone, not for ten minutes
	leaked    *stayer // killed, its netns gone for long
	holder    string  // the netns of the one in kept
}

func plantAll(t *testing.T, m *trial.Machine, pm *podman.Podman) *planted {
	t.Helper()
	one := func(name string) *stayer { return plant(t, m, pm, name) }
	p := &planted{
		lives: one("lives"), again: one("again"), forgotten: one("forgotten"), killed: one("killed"),
		kept: one("kept"), recent: one("recent"), leaked: one("leaked"),
	}
	p.again.withoutGuard(t, m)
	if out, err := ctl(t, m, "forget", "--yes", "--reason", "it is lost", "--conf-dir", m.ConfDir, "--state-dir", m.StateDir, p.forgotten.id); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	hold(t, m, p.forgotten.address, p.forgotten.id)
	p.killed.kill(t)
	p.holder = p.kept.enter(t)
	for _, s := range []*stayer{p.kept, p.recent, p.leaked} {
		s.kill(t)
		s.unmount(t)
	}
	longGone(t, m, p.kept.id)
	longGoneForUs(t, m, p.leaked.id)
	p.recent.gone = true
	return p
}

func plant(t *testing.T, m *trial.Machine, pm *podman.Podman, name string) *stayer {
	t.Helper()
	c := &podman.Container{Podman: pm, Name: name, Networks: []string{"pods"}}
	trial.OK(t, "podman run", c.Run(long))
	said, a := c.Inspect("{{.ID}} {{.NetworkSettings.SandboxKey}} {{.State.ConmonPid}} {{.State.Pid}}")
	trial.OK(t, "podman inspect", a)
	f := strings.Fields(said)
	if len(f) != 4 {
		t.Fatalf("podman inspect: %q", said)
	}
	have := trial.ReservedFor(t, m.Node, "pods", f[0])
	if len(have) != 1 || !inUse(t, m)[have[0]] {
		t.Fatalf("%s has %v", name, have)
	}
	return &stayer{Container: c, id: f[0], netns: f[1], address: have[0], conmon: f[2], pid: f[3]}
}

// stay are those whose addresses nobody may free.
func (p *planted) stay() []*stayer {
	return []*stayer{p.lives, p.again, p.forgotten, p.killed, p.kept}
}

// want looks for all that must be there, in host-local's files and on interfaces.
func (p *planted) want(t *testing.T, m *trial.Machine, when string, more ...*stayer) {
	t.Helper()
	used := inUse(t, m, p.holder)
	for _, s := range append(p.stay(), more...) {
		have := trial.ReservedFor(t, m.Node, "pods", s.id)
		if len(have) != 1 || have[0] != s.address || used[s.address] == s.gone {
			t.Errorf("%s: %s had %s and has %v, on an interface: %v", when, s.Name, s.address, have, used[s.address])
		}
	}
}

func (s *stayer) inJail(t *testing.T, name string, args ...string) {
	t.Helper()
	if _, err := s.Jail.Run(exec.Command(name, args...)); err != nil {
		t.Fatal(err)
	}
}

// kill kills all processes of a container: conmon first, which would ask for a
// DEL.
func (s *stayer) kill(t *testing.T) {
	t.Helper()
	s.inJail(t, "kill", "-9", s.conmon)
	s.inJail(t, "kill", "-9", s.pid)
	guardtest.Eventually(t, "the end of "+s.Name, func() bool {
		_, err := os.Readlink(s.Path("/proc/" + s.pid + "/ns/net"))
		return err != nil
	})
}

// unmount takes its netns' name away, as runtimes do.
func (s *stayer) unmount(t *testing.T) {
	t.Helper()
	s.inJail(t, "umount", "--lazy", s.netns)
	s.inJail(t, "rm", s.netns)
}

// enter starts a process of somebody else's in its netns, and returns where that
// is found from outside.
func (s *stayer) enter(t *testing.T) string {
	t.Helper()
	c, err := s.Start(exec.Command("nsenter", "--net="+s.netns, "sleep", "infinity"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.Stat(s.Path(s.netns))
	if err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/proc/%d/ns/net", c.Process.Pid)
	guardtest.Eventually(t, "a process in "+s.netns, func() bool {
		have, err := os.Stat(path)
		return err == nil && os.SameFile(have, want)
	})
	return path
}

// withoutGuard starts a container again under its id, its record left as a reboot
// leaves it, after which podman sends no DEL, and no guard in the configuration.
func (s *stayer) withoutGuard(t *testing.T, m *trial.Machine) {
	t.Helper()
	record := filepath.Join(m.StateDir, "records", s.id, "eth0@pods@host-local")
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(m.ConfDir, "pods.conflist")
	guarded, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	trial.WriteConf(t, m.ConfDir, "pods.conflist", trial.None().Conflist(m.Node, network()))
	trial.OK(t, "podman stop", s.Stop(long))
	_, a := s.Call(long, "start", s.Name)
	trial.OK(t, "podman start", a)
	trial.WriteConf(t, m.ConfDir, "pods.conflist", guarded)
	err = os.MkdirAll(filepath.Dir(record), 0o700)
	if err == nil {
		err = os.WriteFile(record, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	longGoneForUs(t, m, s.id)
	have := trial.ReservedFor(t, m.Node, "pods", s.id)
	if len(have) != 1 || have[0] == s.address {
		t.Fatalf("%s had %s and has %v", s.Name, s.address, have)
	}
	s.address = have[0]
}

// inUse are the addresses of all interfaces in the jail's mounted network
// namespaces, and in more.
func inUse(t *testing.T, m *trial.Machine, more ...string) map[string]bool {
	t.Helper()
	mounts, err := os.ReadFile(m.Path("/proc/1/mountinfo"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[3], "net:[") {
			more = append(more, m.Path(f[4]))
		}
	}
	used := map[string]bool{}
	for _, path := range more {
		out, _ := exec.Command("nsenter", "--net="+path, "ip", "-o", "addr").Output() // one that is going has none
		for line := range strings.Lines(string(out)) {
			if f := strings.Fields(line); len(f) > 3 {
				address, _, _ := strings.Cut(f[3], "/")
				used[address] = true
			}
		}
	}
	return used
}
