package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A sample is what one process cost, or a pair of them, with every descendant that it waited for.
type sample struct {
	MinorFaults int64         `json:"minor_faults"`
	Switches    int64         `json:"switches"`
	Involuntary int64         `json:"involuntary_switches"` // of these
	User        time.Duration `json:"user_ns"`
	System      time.Duration `json:"system_ns"`
	Wall        time.Duration `json:"wall_ns"`
}

func (s sample) plus(t sample) sample {
	return sample{s.MinorFaults + t.MinorFaults, s.Switches + t.Switches, s.Involuntary + t.Involuntary,
		s.User + t.User, s.System + t.System, s.Wall + t.Wall}
}

// rounds lets every variant do one pair per round and returns the samples by variant. Round n begins with variant n, so
// that each is as often first, and as often after each other one.
func rounds(variants []variant, o options) ([][]sample, error) {
	samples := make([][]sample, len(variants))
	for n := range o.warmup + o.pairs {
		for i := range variants {
			at := (i + n) % len(variants)
			s, err := pair(variants[at], fmt.Sprintf("bench-%d-%d", n, at))
			if err != nil {
				return nil, fmt.Errorf("%s, round %d: %w", variants[at].name, n, err)
			}
			if n >= o.warmup {
				samples[at] = append(samples[at], s)
			}
		}
	}
	return samples, nil
}

// pair attaches a container and detaches it. What it looks up in between is not measured.
func pair(v variant, container string) (sample, error) {
	added, out, err := call(v, "ADD", container)
	if err != nil {
		return sample{}, err
	}
	reservation, err := reserved(v, container, out)
	if err != nil {
		return sample{}, err
	}
	deleted, _, err := call(v, "DEL", container)
	if err != nil {
		return sample{}, err
	}
	if _, err := os.Stat(reservation); !errors.Is(err, fs.ErrNotExist) {
		return sample{}, fmt.Errorf("DEL succeeded, but %s is still there (%w)", reservation, err)
	}
	return added.plus(deleted), nil
}

// reserved finds the reservation behind an ADD's result: the file named like the address, with this container in it.
func reserved(v variant, container string, result []byte) (string, error) {
	var r struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return "", fmt.Errorf("ADD printed no result: %w: %q", err, result)
	}
	if len(r.IPs) == 0 {
		return "", fmt.Errorf("ADD gave no address: %q", result)
	}
	path := filepath.Join(v.dataDir, v.network, r.IPs[0].Address.Addr().String())
	holder, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("ADD gave an address that is not reserved: %w", err)
	}
	if !strings.HasPrefix(string(holder), container+"\r\n") {
		return "", fmt.Errorf("%s is reserved for %q, not for %s", path, holder, container)
	}
	return path, nil
}

// call runs a plugin as libcni does: netconf through a pipe, result through a pipe. Wall time is from before the fork
// until it is reaped and its output read.
func call(v variant, verb, container string) (sample, []byte, error) {
	cmd := exec.Command(v.argv[0], v.argv[1:]...)
	cmd.Env = []string{
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + container, "CNI_IFNAME=eth0",
		"CNI_NETNS=/run/netns/" + container, "CNI_PATH=" + v.cniPath, "PATH=" + os.Getenv("PATH"),
	}
	cmd.Stdin = strings.NewReader(v.netconf)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	start := time.Now()
	err := cmd.Run()
	wall := time.Since(start)
	if err != nil {
		return sample{}, nil, fmt.Errorf("%s: %w: %s%s", verb, err, stdout.Bytes(), stderr.Bytes())
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return sample{}, nil, errors.New("this system does not tell what a process used")
	}
	return sample{
		MinorFaults: usage.Minflt, Switches: usage.Nvcsw + usage.Nivcsw, Involuntary: usage.Nivcsw,
		User: time.Duration(usage.Utime.Nano()), System: time.Duration(usage.Stime.Nano()), Wall: wall,
	}, stdout.Bytes(), nil
}
