package trial

import (
	"slices"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// Fault is one way in which an IPAM plugin, or the node, misbehaves.
type Fault struct {
	Name     string
	ADD      bool             // it has set in when the pod starts; else before it stops
	Script   guardtest.Script // of the delegate
	Patience time.Duration    // of whoever calls the runtime; kubelet's unless set
	Stops    int              // at once
	Guard    guardtest.Object // settings
	Short    bool             // one of those that matter most
	Needs    Kind             // of runtime

	Between func(testing.TB, *Machine)        // Stop and Remove
	During  func(testing.TB, *Machine) string // the delegate's work; what it returns is noted
}

// Kind is what a runtime is, as far as that decides which faults it can meet.
type Kind struct {
	Daemon bool // it can be restarted
	Kills  bool // it kills the main plugin when a call's time is up
}

func (k Kind) meets(needs Kind) bool {
	return (k.Daemon || !needs.Daemon) && (k.Kills || !needs.Kills)
}

func (f Fault) patience() time.Duration {
	if f.Patience == 0 {
		return patience
	}
	return f.Patience
}

// brief is settings by which the guard is done before the patience of a test is
// over, as the built-in ones make it done before kubelet's two minutes are.
func brief() guardtest.Object {
	return guardtest.Object{
		"timeout":  guardtest.Object{"add": "2s", "del": "2s"},
		"deadline": guardtest.Object{"add": "8s", "del": "4s"},
	}
}

// unhurried is settings by which the guard is still waiting for an ADD when the
// patience of a test is over, and for the end of that ADD in the DEL after it.
func unhurried() guardtest.Object {
	return guardtest.Object{
		"timeout":  guardtest.Object{"add": "7s", "del": "2s"},
		"deadline": guardtest.Object{"add": "20s", "del": "10s"},
	}
}

// Faults are those that the tables have, in their order.
func Faults() []Fault {
	del := func(name, script string) Fault { return Fault{Name: name, Script: guardtest.Script{"DEL": script}} }
	code11 := del("DEL fails with code 11", `exit 1 "the pool is busy" 11`)
	notFound := del(`DEL fails, "not found" in its message`, `exit 1 "pool server: host not found" 100`)
	notFound.Short = true
	all := []Fault{
		code11,
		del("DEL fails with code 100", `exit 1 "the pool server is on fire" 100`),
		del("DEL fails, nothing on stdout", `exit 1`),
		del("DEL fails, stderr only", `stderr "panic: nil map\n"; exit 2`),
		del("DEL fails, garbage on stdout", `print "<html>502 Bad Gateway</html>"; exit 1`),
		notFound,
	}
	return append(all, slow()...)
}

// Of are those that a kind of runtime can meet.
func Of(k Kind) []Fault {
	return slices.DeleteFunc(Faults(), func(f Fault) bool { return !k.meets(f.Needs) })
}

// Short are those of them that matter most.
func Short(k Kind) []Fault {
	return slices.DeleteFunc(Of(k), func(f Fault) bool { return !f.Short })
}

func slow() []Fault {
	return []Fault{
		{
			Name: "DEL hangs past the caller's deadline (5 s)", Script: guardtest.Script{"DEL": `sleep 1h`},
			Patience: 5 * time.Second, Guard: brief(), Short: true,
		},
		{
			Name: "ADD fails, and so does its clean-up", ADD: true, Short: true,
			Script: guardtest.Script{"ADD": `alloc; exit 1 "no IPv6 left" 100`, "DEL": `exit 1 "the pool server is on fire" 100`},
		},
		{
			Name: "ADD hangs until the runtime kills the main plugin (3 s), and for ever", ADD: true, Needs: Kind{Kills: true},
			Script: guardtest.Script{"ADD": `alloc; sleep 1h`}, Patience: 3 * time.Second, Guard: unhurried(),
		},
		{
			Name: "the same, and takes an address after 5 s", ADD: true, Needs: Kind{Kills: true}, Short: true,
			Script: guardtest.Script{"ADD": `sleep 5s; alloc`}, Patience: 3 * time.Second, Guard: unhurried(),
		},
		{
			Name: "three Stops at once, DEL takes 1 s", Stops: 3, Short: true,
			Script: guardtest.Script{"DEL": `sleep 1s; free`},
		},
		{
			Name: "runtime restarted after a DEL with code 100", Needs: Kind{Daemon: true},
			Script:  guardtest.Script{"DEL": `exit 1 "the pool server is on fire" 100`},
			Between: func(t testing.TB, m *Machine) { m.Restart(t) },
		},
		{
			Name: "runtime killed while DEL works, and started again", Needs: Kind{Daemon: true}, Short: true,
			Script: guardtest.Script{"DEL": `sleep 1s; exit 1 "the pool server is on fire" 100`},
			During: func(t testing.TB, m *Machine) string { m.Restart(t); return "" },
		},
		{
			Name: "runtime killed while ADD works, and started again", ADD: true, Needs: Kind{Daemon: true},
			Script: guardtest.Script{"ADD": `alloc; sleep 1s`},
			During: func(t testing.TB, m *Machine) string { m.Restart(t); return "" },
		},
		{
			Name: "configuration written while a call waits (DEL takes 3 s)", Needs: Kind{Daemon: true},
			Script: guardtest.Script{"DEL": `sleep 3s; free`}, During: writeConf,
		},
	}
}
