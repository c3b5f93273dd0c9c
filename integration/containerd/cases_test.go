//go:build integration || results

package containerd_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/integration/internal/jail"
	"github.com/ipam-guard/ipam-guard/integration/internal/trial"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

const long = 2 * time.Minute

func latest() release { return releases()[1] }

// others come and go, a second apart: what is owed is released on the way.
func others(t *testing.T, m *trial.Machine, count int) {
	t.Helper()
	for i := range count {
		time.Sleep(time.Second)
		p := m.Pod(fmt.Sprintf("other-%d", i))
		trial.OK(t, "Run of another pod", p.Run(long))
		trial.OK(t, "its Stop", p.Stop(long))
		trial.OK(t, "its Remove", p.Remove(long))
	}
}

// end stops and removes a pod as kubelet does, until it is gone.
func end(t *testing.T, p trial.Pod) {
	t.Helper()
	for range asks {
		if p.State() == trial.Gone {
			return
		}
		p.Stop(long)
		p.Remove(long)
	}
	t.Errorf("the pod is stuck: %s", p.State())
}

// Pods come and go with the real host-local, wherever the guard sits.
func TestPod(t *testing.T) {
	for _, r := range releases() {
		for _, p := range r.positions() {
			if !complete && (p.Defer || !p.Guarded()) {
				continue
			}
			t.Run(r.section+"/"+trial.ID(p.Name), func(t *testing.T) {
				t.Parallel()
				m, _ := newMachineWith(t, r, p, trial.Network{Version: r.cniVersion, Name: "pods", Delegate: trial.RealHostLocal})
				for _, name := range []string{"first", "second"} {
					pod := m.Pod(name)
					trial.OK(t, "Run", pod.Run(long))
					if reserved := trial.Reserved(t, m.Node, "pods"); len(reserved) != 1 || pod.State() != "READY" {
						t.Errorf("the pod is %s, reserved: %v", pod.State(), reserved)
					}
					trial.OK(t, "Stop", pod.Stop(long))
					trial.OK(t, "Remove", pod.Remove(long))
				}
				m.WantNothingLeft(t)
				if guarded := len(m.Log(t)) > 0; guarded != p.Guarded() {
					t.Errorf("the guard was asked: %v", guarded)
				}
			})
		}
	}
}

// Pods at once: containerd sends their ADDs and DELs side by side, and no two
// delegates run at a time.
func TestPodsAtOnce(t *testing.T) {
	t.Parallel()
	m, _ := newMachine(t, latest(), trial.IPAM(), nil)
	m.SetScript(t, guardtest.Script{"ADD": "sleep 100ms; alloc", "DEL": "sleep 100ms; free"})
	var wait sync.WaitGroup
	for i := range 6 {
		wait.Go(func() {
			p := m.Pod(fmt.Sprintf("pod-%d", i))
			trial.OK(t, "Run", p.Run(long))
			trial.OK(t, "Stop", p.Stop(long))
			trial.OK(t, "Remove", p.Remove(long))
		})
	}
	wait.Wait()
	m.WantNothingLeft(t)
}

// Case 9: SIGKILL of the guard while its delegate works on an ADD; containerd
// sends the DEL at once. Nothing is left allocated, and no two delegates run at
// a time (cilium #9913, containerd #5438).
func TestCase9GuardKilledInAdd(t *testing.T) {
	for _, p := range trial.Most(complete, trial.IPAM(), trial.Plugin(), trial.Shadow()) {
		t.Run(trial.ID(p.Name), func(t *testing.T) {
			t.Parallel()
			m, _ := newMachine(t, latest(), p, nil)
			m.SetScript(t, guardtest.Script{"ADD": "sleep 3s; alloc"})
			pod := m.Pod("pod")
			run := make(chan trial.Answer)
			go func() { run <- pod.Run(long) }()
			m.AwaitCalls(t, "ADD", 1)
			killGuard(t, m)
			if a := <-run; a.Err == nil {
				t.Error("Run: the guard was killed, and the pod is there")
			}
			m.SetScript(t, nil)
			end(t, pod)
			others(t, m, 1)
			m.WantNothingLeft(t)
		})
	}
}

// bridge is killed, as the kernel does when memory runs out, while its delegate
// works on an ADD for a guard around bridge. What bridge had started is at an
// end before the rollback, and nothing is left.
func TestMainPluginKilledInAdd(t *testing.T) {
	t.Parallel()
	m, _ := newMachine(t, latest(), trial.Plugin(), nil)
	m.SetScript(t, guardtest.Script{"ADD": "alloc; sleep 5s; alloc"})
	pod := m.Pod("pod")
	run := make(chan trial.Answer)
	go func() { run <- pod.Run(long) }()
	m.AwaitCalls(t, "ADD", 1)
	if killed := kill(t, m, func(p jail.Process) bool { return p.Name == "bridge" }); killed != 1 {
		t.Fatalf("%d bridges were found to be killed", killed)
	}
	if a := <-run; a.Err == nil {
		t.Error("Run: bridge was killed, and the pod is there")
	}
	if leases, dels := m.Leases(t), m.Calls(t, "DEL"); len(leases) != 0 || len(dels) == 0 {
		t.Errorf("after the rollback: addresses %v, %d DELs", leases, len(dels))
	}
	end(t, pod)
	m.WantNothingLeft(t)
}

// killGuard kills the one guard that runs, and not what it started.
func killGuard(t *testing.T, m *trial.Machine) {
	t.Helper()
	killed := kill(t, m, func(p jail.Process) bool { return p.Name == "ipam-guard" || p.Folder == "shadow" })
	if killed != 1 {
		t.Fatalf("%d guards were found to be killed", killed)
	}
}

func kill(t *testing.T, m *trial.Machine, which func(jail.Process) bool) (killed int) {
	t.Helper()
	for _, process := range m.Processes(t) {
		if which(process) {
			_ = unix.Kill(process.PID, unix.SIGKILL)
			killed++
		}
	}
	return killed
}

// Case 9, its twin: the delegate is a shell script with a child that goes on
// after the guard is killed. The next DEL waits, clears that orphan away, and
// never overlaps it.
func TestCase9DelegateWithAChild(t *testing.T) {
	t.Parallel()
	m, _ := newMachineWith(t, latest(), trial.IPAM(), trial.Network{Version: latest().cniVersion, Name: "pods", Delegate: shell})
	m.InstallScript(t, "shell", `cd "$(dirname "$0")/../fake" || exit 3
case "$CNI_COMMAND" in
ADD)
	[ ! -e slow ] || { (sh -c 'echo $$ > orphan.new; mv orphan.new orphan; sleep 20; echo late > lease') & wait; }
	echo "$CNI_CONTAINERID" > lease
	echo '{"cniVersion": "1.1.0", "ips": [{"address": "10.99.0.7/24"}]}' ;;
DEL)
	# One that was killed a moment ago may still be on its way out.
	sleep 0.3
	if grep -qs '^State:[^ZX]*$' "/proc/$(cat orphan)/status"; then echo "$CNI_CONTAINERID" >> overlap; fi
	echo done >> dels
	rm -f lease ;;
esac`)
	m.Touch(t, "slow")
	pod := m.Pod("pod")
	run := make(chan trial.Answer)
	go func() { run <- pod.Run(long) }()
	guardtest.Eventually(t, "the script's child", func() bool { return exists(m, "orphan") })
	killGuard(t, m)
	if a := <-run; a.Err == nil {
		t.Error("Run: the guard was killed, and the pod is there")
	}
	end(t, pod)
	if exists(m, "overlap") || exists(m, "lease") || !exists(m, "dels") {
		t.Errorf("two at once: %v; an address is left: %v; a DEL was sent: %v", exists(m, "overlap"), exists(m, "lease"), exists(m, "dels"))
	}
	m.WantNothingLeft(t)
}

// Case 19: the DEL of one network of a pod fails. containerd goes no further
// then, and asks again: with `fail`, both networks' addresses are released once
// the delegate is well. With `defer` the other network's DEL runs in the same
// Stop (ocicni #86, multus #152).
func TestCase19OneNetworkFails(t *testing.T) {
	for _, p := range []trial.Position{trial.IPAM(), trial.Deferring()} {
		t.Run(trial.ID(p.Name), func(t *testing.T) {
			t.Parallel()
			r := latest()
			r.networks = 2
			m, _ := newMachineWith(t, r, p, trial.Network{Version: r.cniVersion, Name: "one"}, trial.Network{Version: r.cniVersion, Name: "two"})
			pod := m.Pod("pod")
			trial.OK(t, "Run", pod.Run(long))
			if leases := m.Leases(t); len(leases) != 2 {
				t.Fatalf("addresses of two networks: %v", leases)
			}
			m.SetScript(t, guardtest.Script{"DEL": []string{`exit 1 "the pool server is on fire" 100`, "free"}})
			stop := pod.Stop(long)
			asked := map[string]bool{}
			for _, c := range m.Calls(t, "DEL") {
				asked[c.IfName] = true
			}
			if p.Defer != (stop.Err == nil) || p.Defer != (len(asked) == 2) {
				t.Errorf("Stop: %v, with DELs of %v", stop.Err, asked)
			}
			m.SetScript(t, nil)
			end(t, pod)
			others(t, m, max(1, m.Records(t)))
			m.WantNothingLeft(t)
		})
	}
}

// Case 43: 50 Stops of one pod in a row, and three at once (kubernetes #20379,
// meshnet-cni #70). A DEL while its ADD is running is what containerd sends
// when a Run's time is up: see the faults in which ADD hangs.
func TestCase43ManyStops(t *testing.T) {
	t.Parallel()
	m, _ := newMachine(t, latest(), trial.IPAM(), nil)
	pod := m.Pod("pod")
	trial.OK(t, "Run", pod.Run(long))
	atOnce := make(chan trial.Answer)
	for range 3 {
		go func() { atOnce <- pod.Stop(long) }()
	}
	for range 3 {
		trial.OK(t, "one of three Stops at once", <-atOnce)
	}
	for i := range 50 {
		if a := pod.Stop(long); a.Err != nil {
			t.Fatalf("Stop %d of 50: %v", i+1, a.Err)
		}
	}
	trial.OK(t, "Remove", pod.Remove(long))
	m.WantNothingLeft(t)
}

// Case 44: containerd is gone during an ADD, and nobody reads what the plugins
// print (cri-o #8007). Started again, it knows of no pod.
func TestCase44RuntimeGoneInAdd(t *testing.T) {
	for _, p := range trial.Most(complete, trial.Plugin(), trial.IPAM(), trial.Shadow()) {
		t.Run(trial.ID(p.Name), func(t *testing.T) {
			t.Parallel()
			m, d := newMachine(t, latest(), p, nil)
			m.SetScript(t, guardtest.Script{"ADD": "alloc; waitfile containerd-is-gone"})
			pod := m.Pod("pod")
			run := make(chan trial.Answer)
			go func() { run <- pod.Run(long) }()
			m.AwaitCalls(t, "ADD", 1)
			d.kill()
			m.Touch(t, "containerd-is-gone")
			if a := <-run; a.Err == nil {
				t.Error("Run: containerd was killed, and the pod is there")
			}
			guardtest.Eventually(t, "the end of all plugins", func() bool { return len(m.Others(t, "containerd-shim-runc-v2")) == 0 })
			m.SetScript(t, nil)
			d.start(t, m.Dir)
			end(t, pod)
			others(t, m, 1)
			m.WantNothingLeft(t)
		})
	}
}
