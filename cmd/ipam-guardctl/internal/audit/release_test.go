package audit_test

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/ipam-guard/ipam-guard/cmd/ipam-guardctl/internal/audit"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
	"github.com/ipam-guard/ipam-guard/pkg/chain"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

func TestMain(m *testing.M) { guardtest.Main(m) }

// machine is a node with one pod that nobody seems to use: its netns is gone, and
// that was noted in the first minute after boot.
type machine struct {
	*guardtest.Node
	admin chain.Admin
	key   journal.Key
}

func newMachine(t *testing.T) machine {
	t.Helper()
	m := machine{Node: guardtest.New(t), key: journal.Key{Network: "testnet", Container: "pod", IfName: "eth0", Delegate: "fake"}}
	m.admin = chain.Admin{
		Call: chain.Call{
			Env: []string{"FAKEIPAM_DIR=" + m.FakeDir}, Stderr: &bytes.Buffer{}, NodeFile: filepath.Join(m.Dir, "node-config.json"),
			Random: func() float64 { return 0 }, Self: os.Executable,
		},
		StateDir: m.StateDir, Warn: func(text string) { t.Log(text) },
	}
	m.Run(t, "ADD", "pod", guardtest.Opts{}).OK(t)
	return m
}

func (m machine) journal() *journal.Journal {
	return &journal.Journal{Dir: m.StateDir, Node: journal.Here()}
}

// gone lets the pod's netns go, long ago.
func (m machine) gone(t *testing.T) machine {
	t.Helper()
	if up := journal.Uptime(); up < 11*60*1000 {
		t.Skipf("this machine is up for %d s: nothing can be gone for ten minutes", up/1000)
	}
	m.SetNetns(t, "pod", "")
	e := m.journal().Try(m.key)
	if e == nil {
		t.Fatal("no record")
	}
	defer e.Close()
	if err := e.Update(func(r *journal.Record) { r.GoneSince = 1 }); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m machine) recorded() audit.Candidate {
	return audit.Candidate{
		Container: "pod", Addresses: []netip.Addr{netip.MustParseAddr("10.9.0.2")},
		Hold: func(ctx context.Context) (*chain.Hold, error) { return m.admin.Hold(ctx, m.key) },
	}
}

// world is what the second look sees, and what happens in between.
type world struct {
	between func()
	running string
	failed  error
	inUse   string
}

func (w world) releaser() audit.Releaser {
	return audit.Releaser{
		Running: func(context.Context) (audit.Running, error) {
			if w.between != nil {
				w.between()
			}
			return audit.Running{IDs: map[string]bool{w.running: true}}, w.failed
		},
		InUse: func() (map[netip.Addr]string, error) {
			if w.inUse == "" {
				return nil, nil
			}
			return map[netip.Addr]string{netip.MustParseAddr(w.inUse): "there"}, nil
		},
	}
}

// release releases one, and says what it was told.
func (w world) release(ctx context.Context, c audit.Candidate) error {
	told := errors.New("nothing was told")
	w.releaser().Release(ctx, []audit.Candidate{c}, func(_ int, err error) { told = err })
	return told
}

// What nobody uses in either look is released, by the delegate's DEL.
func TestRelease(t *testing.T) {
	t.Parallel()
	m := newMachine(t).gone(t)
	if err := (world{}).release(t.Context(), m.recorded()); err != nil || len(m.Leases(t)) > 0 || m.journal().Try(m.key) != nil {
		t.Errorf("%v, leases %v", err, m.Leases(t))
	}
	if calls := m.Calls(t, "DEL"); len(calls) != 1 {
		t.Errorf("DELs: %+v", calls)
	}
}

// A pod that is there in the second look keeps its address: that it is listed,
// that its netns is back, that an interface has the address, that nobody can tell.
func TestWhoComesInBetween(t *testing.T) {
	t.Parallel()
	failed := errors.New("the runtime is away")
	for name, test := range map[string]struct {
		world
		netns bool
		want  error
	}{
		"listed":              {world: world{running: "pod"}, want: audit.ErrLives},
		"address in use":      {world: world{inUse: "10.9.0.2"}, want: audit.ErrLives},
		"the runtime is away": {world: world{failed: failed}, want: failed},
		"its netns is back":   {netns: true, want: chain.ErrNotYet},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			before, err := os.Readlink(m.Netns("pod"))
			if err != nil {
				t.Fatal(err)
			}
			m.gone(t)
			if test.netns {
				test.between = func() { m.SetNetns(t, "pod", before) }
			}
			err = test.release(t.Context(), m.recorded())
			if !errors.Is(err, test.want) || len(m.Leases(t)) != 1 || len(m.Calls(t, "DEL")) > 0 {
				t.Errorf("%v, want %v; leases %v", err, test.want, m.Leases(t))
			}
			if e := m.journal().Try(m.key); e == nil || e.State != journal.Attached {
				t.Errorf("the record is not as it was: %+v", e)
			} else {
				e.Close()
			}
		})
	}
}

// Between the looks nobody else has the record.
func TestLockedInBetween(t *testing.T) {
	t.Parallel()
	m := newMachine(t).gone(t)
	locked := false
	w := world{running: "pod", between: func() { locked = m.journal().Try(m.key) == nil }}
	_ = w.release(t.Context(), m.recorded())
	if !locked {
		t.Error("the record could be had between the looks")
	}
}

// One that another operation has is left to it.
func TestBusy(t *testing.T) {
	t.Parallel()
	m := newMachine(t).gone(t)
	e := m.journal().Try(m.key)
	defer e.Close()
	var busy *journal.BusyError
	if err := (world{}).release(t.Context(), m.recorded()); !errors.As(err, &busy) || len(m.Leases(t)) != 1 {
		t.Errorf("%v, leases %v", err, m.Leases(t))
	}
}

// unrecorded is the same pod, its record lost.
func (m machine) unrecorded(t *testing.T) audit.Candidate {
	t.Helper()
	e := m.journal().Try(m.key)
	if e == nil {
		t.Fatal("no record")
	}
	facts := e.Facts
	if err := e.Remove(); err != nil {
		t.Fatal(err)
	}
	e.Close()
	c := m.recorded()
	c.Hold = func(ctx context.Context) (*chain.Hold, error) { return m.admin.Claim(ctx, m.key, facts) }
	return c
}

// An address without a record is released by its network's configuration. What
// stands in its record meanwhile releases nothing if the tool dies.
func TestClaim(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	c := m.unrecorded(t)
	var meanwhile chain.Held
	between := func() {
		if all, err := m.admin.See(); err != nil || len(all) != 1 {
			t.Errorf("records: %+v, %v", all, err)
		} else {
			meanwhile = *all[0]
		}
	}
	if err := (world{between: between}).release(t.Context(), c); err != nil || len(m.Leases(t)) > 0 {
		t.Errorf("%v, leases %v", err, m.Leases(t))
	}
	if !meanwhile.Busy || meanwhile.State != journal.Adding || meanwhile.Started {
		t.Errorf("meanwhile: %+v", meanwhile)
	}
	if all, err := m.admin.See(); err != nil || len(all) > 0 {
		t.Errorf("a record is left: %+v, %v", all, err)
	}
}

// A DEL that fails, or a container that comes, leaves neither record nor harm.
func TestClaimThatFails(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	c := m.unrecorded(t)
	m.SetScript(t, guardtest.Script{"DEL": `exit 1 "away" 100`})
	if err := (world{}).release(t.Context(), c); err == nil || err.Error() != "away" || len(m.Leases(t)) != 1 {
		t.Errorf("%v, leases %v", err, m.Leases(t))
	}
	m.SetScript(t, nil)
	if err := (world{running: "pod"}).release(t.Context(), c); !errors.Is(err, audit.ErrLives) || len(m.Leases(t)) != 1 {
		t.Errorf("%v, leases %v", err, m.Leases(t))
	}
	if all, err := m.admin.See(); err != nil || len(all) > 0 {
		t.Errorf("a record is left: %+v, %v", all, err)
	}
}

// What has a record after all is that record's.
func TestClaimOfRecorded(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	c := m.recorded()
	c.Hold = func(ctx context.Context) (*chain.Hold, error) { return m.admin.Claim(ctx, m.key, journal.Facts{}) }
	if err := (world{}).release(t.Context(), c); !errors.Is(err, chain.ErrRecorded) || len(m.Leases(t)) != 1 {
		t.Errorf("%v, leases %v", err, m.Leases(t))
	}
}

// Interrupted in the pause, nothing is released.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	m := newMachine(t).gone(t)
	ctx, cancel := context.WithCancel(t.Context())
	r := world{}.releaser()
	r.Pause = 1 << 40
	c := m.recorded()
	hold := c.Hold
	c.Hold = func(ctx context.Context) (*chain.Hold, error) { defer cancel(); return hold(ctx) }
	var told error
	r.Release(ctx, []audit.Candidate{c}, func(_ int, err error) { told = err })
	if told == nil || len(m.Leases(t)) != 1 || m.journal().Try(m.key) == nil {
		t.Errorf("%v, leases %v", told, m.Leases(t))
	}
}
