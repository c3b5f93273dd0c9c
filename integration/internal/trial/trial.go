// Package trial puts a pod through one misbehaviour of its IPAM plugin, on a
// real runtime, with the guard somewhere or nowhere, and says what came of it:
// what each call of the runtime answered, what was left at once, and what was
// left after the delegate was well again, the runtime had been asked again as
// often as it is in life, and as many more pods as there were records had come
// and gone. How a runtime is started and asked is left to those who use this.
package trial

import (
	"fmt"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/integration/internal/jail"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// Answer is what a call of the runtime came to.
type Answer struct {
	Err  error
	Took time.Duration
}

// Pod is what a runtime makes of one, by its own kind of calls. Each call gives
// up after the patience of whoever makes it.
type Pod interface {
	Run(patience time.Duration) Answer
	Stop(patience time.Duration) Answer
	Remove(patience time.Duration) Answer
	State() string // Gone, or what the runtime calls it
}

// Gone is the state of a pod that the runtime doesn't know, or no longer.
const Gone = "gone"

// Machine is a node in a jail, and a runtime in there.
type Machine struct {
	*guardtest.Node
	*jail.Jail // nil where the runtime is the test itself
	Position   Position
	Pod        func(name string) Pod
	Own        []string // programs that run without any pod
	Asks       int      // how often it is asked again by whoever sees a Stop or Remove fail
	Restart    func(t testing.TB)
	ConfDir    string
}

// Left is what pods have left behind.
type Left struct{ Addresses, Processes, Netns int }

// Trial is what came of one.
type Trial struct {
	Position, Fault    string
	Deferring, Guarded bool

	Run    Answer
	Stops  []Answer
	Remove []Answer // one, or none where there was nothing to remove
	State  string
	AtOnce Left

	Again      []Answer // Stop and Remove in turn
	StateThen  string
	Records    int // pending before others came and went
	Others     []Answer
	After      Left
	RecordsEnd int
	Overlap    bool // two delegates at once, ever
	Note       string
}

// patience is kubelet's for a Stop.
const patience = 2 * time.Minute

// Try puts a pod through a fault. The machine is of no use for another one.
func (m *Machine) Try(t testing.TB, f Fault) *Trial {
	t.Helper()
	r := &Trial{
		Position: m.Position.Name, Fault: f.Name,
		Guarded: m.Position.Guarded(), Deferring: m.Position.Defer,
	}
	p := m.Pod("pod")
	m.suffer(t, p, f, r)
	r.State, r.AtOnce = p.State(), m.settled(t, time.Second)

	m.SetScript(t, nil)
	m.again(p, f, r)
	r.StateThen = p.State()
	r.Records = m.Records(t)
	for i := range max(1, r.Records) {
		time.Sleep(time.Second)
		r.Others = append(r.Others, m.comeAndGo(fmt.Sprintf("other-%d", i))...)
	}
	r.After, r.RecordsEnd = m.Left(t), m.Records(t)
	for _, c := range m.Calls(t) {
		r.Overlap = r.Overlap || c.Overlap
	}
	return r
}

// suffer is a pod's life under the fault.
func (m *Machine) suffer(t testing.TB, p Pod, f Fault, r *Trial) {
	patience := f.patience()
	if f.ADD {
		m.SetScript(t, f.Script)
		r.Run = m.during(t, f, r, "ADD", func() Answer { return p.Run(patience) })
		if p.State() == Gone {
			return
		}
		r.Stops = []Answer{p.Stop(patience)}
	} else {
		if r.Run = p.Run(2 * time.Minute); r.Run.Err != nil {
			t.Fatalf("a pod can't be had: %v", r.Run.Err)
		}
		m.SetScript(t, f.Script)
		r.Stops = m.stops(t, p, f, r)
	}
	if f.Between != nil {
		f.Between(t, m)
	}
	r.Remove = []Answer{p.Remove(patience)}
}

// stops stops a pod, several times at once if the fault is that.
func (m *Machine) stops(t testing.TB, p Pod, f Fault, r *Trial) []Answer {
	answers := make(chan Answer)
	for range max(1, f.Stops) - 1 {
		go func() { answers <- p.Stop(f.patience()) }()
	}
	all := []Answer{m.during(t, f, r, "DEL", func() Answer { return p.Stop(f.patience()) })}
	for range max(1, f.Stops) - 1 {
		all = append(all, <-answers)
	}
	return all
}

// during makes a call, and does what the fault does while the delegate is at
// work on it.
func (m *Machine) during(t testing.TB, f Fault, r *Trial, verb string, call func() Answer) Answer {
	if f.During == nil {
		return call()
	}
	before := len(m.Calls(t, verb))
	answer := make(chan Answer)
	go func() { answer <- call() }()
	m.AwaitCalls(t, verb, before+1)
	r.Note = f.During(t, m)
	return <-answer
}

// again asks for what has not been done, once a second.
func (m *Machine) again(p Pod, f Fault, r *Trial) {
	for range m.Asks {
		if p.State() == Gone {
			return
		}
		time.Sleep(time.Second)
		r.Again = append(r.Again, p.Stop(f.patience()), p.Remove(f.patience()))
	}
}

func (m *Machine) comeAndGo(name string) []Answer {
	p := m.Pod(name)
	return []Answer{p.Run(patience), p.Stop(patience), p.Remove(patience)}
}

// Left is what is there once what ends by itself had time to.
func (m *Machine) Left(t testing.TB) Left {
	t.Helper()
	return m.settled(t, 10*time.Second)
}

func (m *Machine) settled(t testing.TB, settle time.Duration) Left {
	t.Helper()
	have := m.look(t)
	for end := time.Now().Add(settle); have.Processes+have.Netns > 0 && time.Now().Before(end); have = m.look(t) {
		time.Sleep(50 * time.Millisecond)
	}
	return have
}

func (m *Machine) look(t testing.TB) Left {
	t.Helper()
	l := Left{Addresses: len(m.Leases(t))}
	if m.Jail != nil {
		l.Processes, l.Netns = len(m.Others(t, m.Own...)), m.Jail.Netns(t)
	}
	return l
}
