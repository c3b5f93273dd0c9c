//go:build integration

package integration_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

type list = []object

func valid(container, ifname string) object {
	return object{"containerID": container, "ifname": ifname}
}

const (
	validKey = "cni.dev/valid-attachments"
	olderKey = "cni.dev/attachments"
)

// pods attaches three containers and returns their owners' names as the store
// has them.
func (m *machine) pods(t *testing.T, network string) []string {
	t.Helper()
	for _, id := range []string{"a", "b", "c"} {
		m.Run(t, "ADD", id, opts{Conf: m.conf(conf{Version: "1.1.0", Name: network})}).OK(t)
	}
	return []string{"a/eth0", "b/eth0", "c/eth0"}
}

// Case 63, Case 69: what a GC with the real host-local keeps. Bare, it frees
// everything wherever a list is missing.
func TestGCKeepsWhatTheListNames(t *testing.T) {
	all := []string{"a/eth0", "b/eth0", "c/eth0"}
	for _, c := range []struct {
		name string
		top  object
		keep []string
	}{
		{"two of three", object{validKey: list{valid("a", "eth0"), valid("c", "eth0")}}, []string{"a/eth0", "c/eth0"}},
		{"both names, as libcni writes them", object{validKey: list{valid("a", "eth0")}, olderKey: list{valid("a", "eth0")}}, []string{"a/eth0"}},
		{"the older name alone", object{olderKey: list{valid("a", "eth0")}}, []string{"a/eth0"}},
		{"others' containers", object{validKey: list{valid("x", "eth0")}}, nil},
		{"empty", object{validKey: list{}}, nil},
		{"the older name, empty", object{olderKey: list{}}, nil},
		{"none", object{}, all},
		{"null, as CRI-O writes it without pods", object{validKey: nullValue, olderKey: nullValue}, all},
		{"null beside a list of the older name", object{validKey: nullValue, olderKey: list{valid("a", "eth0")}}, all},
		{"text", object{validKey: "a"}, all},
		{"an object", object{validKey: valid("a", "eth0")}, all},
		{"texts in it", object{validKey: []string{"a"}}, all},
		{"null in it", object{validKey: []any{valid("a", "eth0"), nil}}, all},
		{"a nameless one in it", object{validKey: []any{valid("a", "eth0"), object{}}}, all},
		{"numbers as names", object{validKey: list{{"containerID": 1, "ifname": "eth0"}}}, all},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			m.pods(t, "pods")
			other := m.pods(t, "other")
			for _, container := range []string{"a", "b", "c"} {
				m.SetNetns(t, container, "") // gone: what lives is kept, whatever the list says
			}
			r := m.Run(t, "GC", "", opts{Conf: m.conf(conf{Version: "1.1.0", Name: "pods", Top: c.top})}).OK(t)
			if r.Stdout != "" {
				t.Errorf("stdout: %s", r.Stdout)
			}
			if diff := cmp.Diff(c.keep, values(m.reserved(t, "pods"))); diff != "" {
				t.Errorf("kept (-want +have):\n%s", diff)
			}
			if diff := cmp.Diff(other, values(m.reserved(t, "other"))); diff != "" {
				t.Errorf("another network's:\n%s", diff)
			}
			if forwarded := len(runs(m.logged(t, "GC"))) > 0; forwarded == cmp.Equal(c.keep, all) {
				t.Errorf("forwarded: %t, kept all: %t", forwarded, !forwarded)
			}
		})
	}
}

// runs are the runs of the delegate in the log's last line.
func runs(lines []object) []any {
	if len(lines) == 0 {
		return nil
	}
	attempts, _ := lines[len(lines)-1]["attempts"].([]any)
	return attempts
}

// Case 6: without the lock nothing is released, and the caller hears of it.
func TestCase6GCWithoutTheLock(t *testing.T) {
	for _, policy := range []string{"fail", "proceed"} {
		t.Run(policy, func(t *testing.T) {
			m := newMachine(t)
			all := m.pods(t, "pods")
			m.replaceByFolder(t, m.LockPath("delegate-host-local"))
			e := m.Run(t, "GC", "", opts{Conf: m.conf(conf{
				Version: "1.1.0", Name: "pods", Top: object{validKey: list{}},
				Guard: object{"lock": object{"onUnavailable": policy}},
			})}).Error(t)
			if e.Code != 5 {
				t.Errorf("code %d, want 5: %s", e.Code, e.Msg)
			}
			if diff := cmp.Diff(all, values(m.reserved(t, "pods"))); diff != "" {
				t.Errorf("kept:\n%s", diff)
			}
		})
	}
}
