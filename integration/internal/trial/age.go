package trial

import (
	"testing"

	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// patienceOfRecords is how long a network namespace has to be gone before anyone
// may release its attachment, in milliseconds, and a minute.
const patienceOfRecords = 11 * 60 * 1000

// TenMinutesOn sets the note that a network namespace is gone back to when the
// machine was started, in each record that has one, and says how many that were.
// It is false on a machine that isn't up for so long: there nothing can be gone
// for ten minutes, and what would come of it can't be seen.
func (m *Machine) TenMinutesOn(t testing.TB) (noted int, can bool) {
	t.Helper()
	if up := journal.Uptime(); up < patienceOfRecords {
		t.Logf("this machine is up for %d s: what happens ten minutes on is not looked at", up/1000)
		return 0, false
	}
	j := &journal.Journal{Dir: m.StateDir}
	m.Do(func() { j.Node = journal.Here() }) // whose boot id may be another than the machine's
	for _, key := range m.keys() {
		e := j.Try(key)
		if e == nil {
			t.Fatalf("somebody is at work on the record %v", key)
		}
		if e.GoneSince != 0 {
			noted++
			if err := e.Update(func(r *journal.Record) { r.GoneSince = 1 }); err != nil {
				t.Error(err)
			}
		}
		e.Close()
	}
	return noted, true
}

// Records counts the guard's, whatever their state.
func (m *Machine) Records(testing.TB) int { return len(m.keys()) }

func (m *Machine) keys() (all []journal.Key) {
	one := func(k journal.Key) { all = append(all, k) }
	(&journal.Journal{Dir: m.StateDir, Node: journal.Here()}).Walk("", "", one, one)
	return all
}
