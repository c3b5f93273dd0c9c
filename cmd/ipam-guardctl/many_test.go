package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// many is how many records a node has that went wrong for long.
const many = 10_000

// withRecords is a guarded node with records of one pod that was not released, in
// as many copies.
func withRecords(t *testing.T, copies int) node {
	t.Helper()
	n := newNode(t)
	n.write(t, "net.d/10-pods.conflist", podsConf)
	owing(t, n)
	text := read(t, theRecord(t, n))
	for i := range copies - 1 {
		pod := fmt.Sprintf("owed%05d", i)
		n.write(t, "state/records/"+pod+"/eth0@pods@host-local", strings.ReplaceAll(text, `"owed"`, `"`+pod+`"`))
	}
	return n
}

func (n node) confDir() []string { return []string{"--conf-dir", n.path("net.d")} }

// Ten thousand records: every command answers, and says the same of all. How long
// that takes is in the log: about half a second each on a calm machine, of the two
// that read one record a twentieth.
func TestManyRecords(t *testing.T) {
	t.Parallel()
	n := withRecords(t, many)
	took := func(args ...string) string {
		began := time.Now()
		out, status := n.tool(t, nil, append(args, n.confDir()...)...)
		t.Logf("%s: %s, exit status %d", strings.Join(args, " "), time.Since(began).Round(time.Millisecond), status)
		if time.Since(began) > 20*time.Second {
			t.Errorf("%v took %s: it grows with the square of the records", args, time.Since(began))
		}
		return out
	}
	if out := took("status"); !strings.Contains(out, fmt.Sprintf("%d records of host-local: away", many)) {
		t.Errorf("status:\n%s", out)
	}
	if out := took("pending"); strings.Count(out, "eth0@pods@host-local") != many {
		t.Errorf("pending lists %d", strings.Count(out, "eth0@pods@host-local"))
	}
	if out := took("pending", "owed09998"); !strings.Contains(out, "netconf") {
		t.Errorf("pending of one:\n%s", out)
	}
	if out := took("replay", "--all", "--dry-run"); strings.Count(out, "would be released") != many {
		t.Errorf("replay would release %d", strings.Count(out, "would be released"))
	}
	if out := took("forget", "owed09998", "--dry-run"); !strings.Contains(out, "would be given up") {
		t.Errorf("forget:\n%s", out)
	}
	if out := took("doctor", "--cni-path", n.path("cni")); !strings.Contains(out, fmt.Sprintf("%d releasing", many)) {
		t.Errorf("doctor:\n%s", out)
	}
}

// What can't be read and what is newer is named, and spoils nothing else.
func TestRecordsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	n := withRecords(t, 2)
	text := read(t, n.path("state/records/owed/eth0@pods@host-local"))
	n.write(t, "state/records/torn/eth0@pods@host-local", text[:20])
	newer := strings.ReplaceAll(strings.Replace(text, `"version":1`, `"version":99`, 1), `"owed"`, `"newer"`)
	n.write(t, "state/records/newer/eth0@pods@host-local", newer)

	out, _ := n.tool(t, nil, append([]string{"status"}, n.confDir()...)...)
	if !strings.Contains(strings.Join(strings.Fields(out), " "), "host-local 0 0 2 2 0 1 1 "+n.path("state")) {
		t.Errorf("status:\n%s", out)
	}
	out, _ = n.tool(t, nil, append([]string{"pending"}, n.confDir()...)...)
	for _, want := range []string{"torn/eth0@pods@host-local       unreadable", "newer/eth0@pods@host-local      newer", "written by a newer version"} {
		if !strings.Contains(out, want) {
			t.Errorf("pending lacks %q:\n%s", want, out)
		}
	}
	// A container's whole name means that one, whatever others begin so.
	out, status := n.tool(t, nil, append([]string{"pending", "owed"}, n.confDir()...)...)
	if status != 0 || !strings.Contains(out, "netconf") {
		t.Errorf("pending owed: exit status %d\n%s", status, out)
	}
	out, status = n.tool(t, nil, append([]string{"replay", "--all"}, n.confDir()...)...)
	if status != 5 || n.leases(t) != 0 || !strings.Contains(out, "2 of 4 not released: 2 failed") || !strings.Contains(out, "written by a newer version: use the newer ipam-guardctl") {
		t.Errorf("replay: exit status %d, %d leases\n%s", status, n.leases(t), out)
	}
	sure := append([]string{"--yes", "--reason", "broken"}, n.confDir()...)
	out, status = n.tool(t, nil, append([]string{"forget", "newer"}, sure...)...)
	if status != 1 || !strings.Contains(out, "use the newer ipam-guardctl") || read(t, n.path("state/records/newer/eth0@pods@host-local")) != newer {
		t.Errorf("forget of a newer one: exit status %d\n%s", status, out)
	}
	out, status = n.tool(t, nil, append([]string{"forget", "torn"}, sure...)...)
	aside, _ := os.ReadDir(n.path("state/aside"))
	if status != 0 || !strings.Contains(out, "set aside") || len(aside) != 1 || !strings.Contains(read(t, n.path("log")), "it can't be read and was set aside: its address may stay taken, by") {
		t.Errorf("forget of a torn one: exit status %d, aside %v\n%s", status, aside, out)
	}
}

// Somebody without rights is told so, by every command, and changes nothing.
func TestWithoutRights(t *testing.T) {
	t.Parallel()
	n := withRecords(t, 1)
	if err := os.Chmod(n.path("log"), 0); err != nil {
		t.Fatal(err)
	}
	nobody := openFor(t, n)
	if nobody == nil {
		if err := os.Chmod(n.path("state"), 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(n.path("state"), 0o700) })
	}
	for _, args := range [][]string{
		{"status"}, {"pending"}, {"pending", "owed"}, {"replay", "--all"}, {"replay", "owed"}, {"forget", "owed", "--yes", "--reason", "x"},
	} {
		out, status := n.tool(t, nobody, append(args, n.confDir()...)...)
		if status != 1 || !strings.Contains(out, "permission denied: run it as root") {
			t.Errorf("%v: exit status %d\n%s", args, status, out)
		}
	}
	out, status := n.tool(t, nobody, append([]string{"doctor", "--cni-path", n.path("cni")}, n.confDir()...)...)
	if status != 1 && status != 3 || !strings.Contains(out, "not seen: the records can't be seen") || !strings.Contains(out, "run it as root") {
		t.Errorf("doctor: exit status %d\n%s", status, out)
	}
	if nobody != nil && n.leases(t) != 1 {
		t.Error("it was released")
	}
}

// replay waits for who is at work, for as long as --wait says, and then releases.
func TestReplayWaits(t *testing.T) {
	t.Parallel()
	n := withRecords(t, 1)
	f, err := os.OpenFile(n.path("lock", "delegate-host-local.lock"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	out, status := n.tool(t, nil, append([]string{"replay", "owed", "--wait", "50ms"}, n.confDir()...)...)
	if status != 1 || !strings.Contains(out, "delegate-host-local.lock is busy") || n.leases(t) != 1 {
		t.Errorf("the lock is held: exit status %d, %d leases\n%s", status, n.leases(t), out)
	}
	if !strings.Contains(read(t, theRecord(t, n)), `"tries":0`) {
		t.Error("the wait for the lock counts as a try")
	}

	done := make(chan string)
	go func() {
		out, status := n.tool(t, nil, append([]string{"replay", "owed", "--wait", "1m"}, n.confDir()...)...)
		done <- fmt.Sprint(status, out)
	}()
	// Only then is the lock given back.
	var s struct {
		Items []struct {
			Locks []struct {
				Held    bool
				Waiting int
			}
		}
	}
	for len(s.Items) == 0 || s.Items[0].Locks[0].Waiting == 0 {
		out, _ := n.tool(t, nil, append([]string{"status", "--output", "json"}, n.confDir()...)...)
		if err := json.Unmarshal([]byte(out), &s); err != nil || len(s.Items[0].Locks) != 1 || !s.Items[0].Locks[0].Held {
			t.Fatalf("%v\n%s", err, out)
		}
		select {
		case out := <-done:
			t.Fatalf("it did not wait: %s", out)
		default:
		}
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if out := <-done; !strings.HasPrefix(out, "0owed/eth0@pods@host-local  released") || n.leases(t) != 0 {
		t.Errorf("%d leases, %s", n.leases(t), out)
	}
}
