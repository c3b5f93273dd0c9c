//go:build integration || crash

package model_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// modes are what can be wrong with the delegate: before it does its work, or
// (+) when it has done it.
var modes = []string{
	"heal",
	"addfail", "addfail+", "addhang", "addhang+", "adddie+", "addjunk+",
	"delfail", "delfail+", "delhang", "delhang+", "deldie+",
	"fail", "hang+",
}

const refused = `exit 1 "out of order" 100`

// faults is what a mode makes of the scripted delegate.
func faults(alloc, mode string) guardtest.Script {
	s := guardtest.Script{"ADD": alloc, "DEL": "free", "GC": "gc"}
	work := map[string]string{"ADD": alloc + "; ", "DEL": "free; "}
	how, after := strings.CutSuffix(mode, "+")
	for _, verb := range []string{"ADD", "DEL"} {
		what, ok := strings.CutPrefix(how, strings.ToLower(verb))
		if !ok && how != "fail" && how != "hang" {
			continue
		}
		text := map[string]string{"fail": refused, "hang": "sleep 1m", "die": "die KILL", "junk": `print "junk"`}[what]
		if after {
			text = work[verb] + text
		}
		s[verb] = text
	}
	return s
}

// wrapper is a host-local with the same faults: it notes when two run at once,
// and is told its mode by a file. A child of an earlier one that has its SIGKILL
// and is not gone yet runs no more (third digit of the pending signals).
const wrapper = `
exec 9>>%[1]s/running
if ! flock -n 9; then
	for p in /proc/[0-9]*; do
		[ $p != /proc/$$ ] && [ $p/fd/9 -ef %[1]s/running ] || continue
		grep -qs 'Pnd:.*[13579bdf]..$' $p/status || echo "$CNI_COMMAND $CNI_CONTAINERID beside ${p#/proc/}" >>%[1]s/overlaps
	done
	flock 9
fi
real=%[1]s/real/host-local
read mode <%[1]s/mode
case "$mode" in
	fail|hang+) mode=$CNI_COMMAND$mode ;;
esac
case "$mode" in
	add*) mode=ADD${mode#add} ;;
	del*) mode=DEL${mode#del} ;;
esac
answer() { echo '{"cniVersion": "1.1.0", "code": 100, "msg": "out of order"}'; exit 1; }
case "$mode" in
	${CNI_COMMAND}fail) answer ;;
	${CNI_COMMAND}hang) exec sleep 60 ;;
	${CNI_COMMAND}fail+) out=$($real) || { printf %%s "$out"; exit 1; }; answer ;;
	${CNI_COMMAND}hang+) $real >&2; exec sleep 60 ;;
	${CNI_COMMAND}die+) $real >&2; kill -9 $$ ;;
	${CNI_COMMAND}junk+) $real; echo junk ;;
	*) exec $real ;;
esac
`

func (w *world) installHostLocal(t testing.TB) {
	t.Helper()
	w.Install(t, guardtest.Build(t, guardtest.HostLocal), "real", "host-local")
	w.InstallScript(t, "host-local", fmt.Sprintf(wrapper, w.Dir))
}

func (w *world) setMode(t testing.TB, mode string) {
	t.Helper()
	if !w.real {
		w.SetScript(t, faults(w.alloc, mode))
		return
	}
	if err := os.WriteFile(filepath.Join(w.Dir, "mode"), []byte(mode+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// conf is the netconf of a network whose pool has that many addresses.
func (w *world) conf(network string, pool int, top guardtest.Object) guardtest.Conf {
	c := guardtest.Conf{Version: "1.1.0", Name: network, Top: top, Delegate: guardtest.Object{"pool": pool}}
	if w.real {
		c.Delegate = guardtest.Object{
			"type": "host-local", "dir": nil, "dataDir": filepath.Join(w.Dir, "networks"),
			"ranges": [][]guardtest.Object{{{
				"subnet": "10.99.0.0/24", "rangeStart": "10.99.0.2", "rangeEnd": fmt.Sprintf("10.99.0.%d", 1+pool),
			}}},
		}
	}
	return c
}

// leases are what the delegate has given out: address -> container/interface.
// With host-local the network comes before the address.
func (w *world) leases(t testing.TB) map[string]string {
	t.Helper()
	if !w.real {
		return w.Leases(t)
	}
	taken := map[string]string{}
	for _, network := range networks {
		dir := filepath.Join(w.Dir, "networks", network)
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		for _, e := range entries {
			if net.ParseIP(e.Name()) == nil {
				continue // its lock and where it stopped counting
			}
			owner, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			if len(owner) == 0 {
				// host-local makes the file first and then writes whose it is.
				// Killed between the two, it leaves what no DEL can release.
				continue
			}
			taken[network+" "+e.Name()] = strings.ReplaceAll(strings.TrimSpace(string(owner)), "\r\n", "/")
		}
	}
	return taken
}

// lease is an address as leases names it.
func (w *world) lease(network, ip string) string {
	if w.real {
		return network + " " + ip
	}
	return ip
}

// noOverlap fails the test if two delegates ever ran at once.
func (w *world) noOverlap(t testing.TB) {
	t.Helper()
	if !w.real {
		w.NoOverlap(t)
		return
	}
	if text, err := os.ReadFile(filepath.Join(w.Dir, "overlaps")); err == nil {
		t.Errorf("two delegates at once: %s", text)
	}
}
