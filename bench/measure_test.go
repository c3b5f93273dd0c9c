package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// plugin writes a shell script that plays host-local: $dir is where it reserves.
func plugin(t *testing.T, add, del string) variant {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "plugin")
	script := fmt.Sprintf("#!/bin/sh\ndir=%s/net\nmkdir -p $dir\ncase $CNI_COMMAND in\nADD) %s ;;\nDEL) %s ;;\nesac\n", dir, add, del)
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	// Started through the shell, so that no other test's fork can find the script still open for writing.
	return variant{name: "fake", argv: []string{"/bin/sh", path}, network: "net", netconf: "{}", dataDir: dir}
}

const (
	reserve = `printf "$CNI_CONTAINERID\r\n$CNI_IFNAME" >$dir/10.1.0.2`
	answer  = `echo '{"ips": [{"address": "10.1.0.2/16"}]}'`
)

func TestPairBelievesNoPlugin(t *testing.T) {
	for _, c := range []struct{ name, add, del, want string }{
		{"honest", reserve + "; " + answer, "rm $dir/10.1.0.2", ""},
		{"nothing reserved", answer, "", "not reserved"},
		{"another's address", "echo other >$dir/10.1.0.2; " + answer, "", "not for c1"},
		{"no address", "echo '{}'", "", "no address"},
		{"no JSON", "echo hello", "", "no result"},
		{"nothing freed", reserve + "; " + answer, "true", "still there"},
		{"ADD fails", "echo why >&2; exit 1", "", "why"},
		{"DEL fails", reserve + "; " + answer, "exit 1", "DEL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := pair(plugin(t, c.add, c.del), "c1")
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error = %v, want one that says %q", err, c.want)
			}
		})
	}
}

func TestSampleCountsWaitedForChildren(t *testing.T) {
	alone := plugin(t, "true", "")
	nested := plugin(t, "for i in 1 2 3; do /bin/true; done; sleep 0.05", "")
	a, _, err := call(alone, "ADD", "c1")
	if err != nil {
		t.Fatal(err)
	}
	n, _, err := call(nested, "ADD", "c1")
	if err != nil {
		t.Fatal(err)
	}
	if n.MinorFaults <= a.MinorFaults {
		t.Errorf("four children caused %d faults, none caused %d", n.MinorFaults, a.MinorFaults)
	}
	if n.Wall < 50*time.Millisecond {
		t.Errorf("wall = %v, with a child that sleeps 50 ms", n.Wall)
	}
}

func TestRoundsTakeTurns(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	var fakes []variant
	for i := range 3 {
		fakes = append(fakes, plugin(t, fmt.Sprintf("echo %d >>%s; %s; %s", i, log, reserve, answer), "rm $dir/10.1.0.2"))
	}
	samples, err := rounds(fakes, options{pairs: 2, warmup: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range samples {
		if len(s) != 2 {
			t.Errorf("variant %d has %d samples, want 2: the round before does not count", i, len(s))
		}
	}
	order, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(strings.Fields(string(order)), ""); got != "012120201" {
		t.Errorf("order = %s, want one that turns: 012 120 201", got)
	}
}

// TestWrappersChangeNothing holds the two that the guard is compared with to their word.
func TestWrappersChangeNothing(t *testing.T) {
	dir := t.TempDir()
	for name, build := range map[string]*exec.Cmd{
		"wrapper": exec.Command("cc", "-o", filepath.Join(dir, "wrapper"), "wrapper/wrapper.c"),
		"floor":   exec.Command("go", "build", "-o", filepath.Join(dir, "floor"), "./floor"),
	} {
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("building %s: %v: %s", name, err, out)
		}
		t.Run(name, func(t *testing.T) {
			delegate := plugin(t, "", "cat; echo $X >&2; exit 7").argv[1]
			cmd := exec.Command(filepath.Join(dir, name), delegate)
			cmd.Env = append(slices.Clip(os.Environ()), "CNI_COMMAND=DEL", "X=through")
			cmd.Stdin = strings.NewReader("netconf")
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, _ := cmd.Output()
			if string(out) != "netconf" || stderr.String() != "through\n" || cmd.ProcessState.ExitCode() != 7 {
				t.Errorf("stdout %q, stderr %q, exit %d; want netconf, through, 7", out, stderr.String(), cmd.ProcessState.ExitCode())
			}
			if err := exec.Command(filepath.Join(dir, name), "/nowhere").Run(); err == nil {
				t.Error("a delegate that is not there counts as success")
			}
		})
	}
}
