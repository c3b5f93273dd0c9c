//go:build kubernetes

package kubernetes_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ipam-guard/ipam-guard/integration/kubernetes/internal/faultproxy"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// What the guard goes by when it takes a DEL for done is what this version of
// whereabouts writes to stderr: a version that writes something else must fail
// here, and not in a cluster.
func TestSigns(t *testing.T) {
	t.Parallel()
	one, two := []string{"10.70.0.0/24"}, []string{"10.70.0.0/24", "10.71.0.0/24"}
	patch403 := faultproxy.Rule{Method: "PATCH", Path: pools, Status: 403}
	single := func(r string) guardtest.Object {
		return guardtest.Object{"range": r, "ipRanges": []guardtest.Object{{"range": r}}}
	}
	for name, c := range map[string]struct {
		ranges []string
		rule   faultproxy.Rule  // the zero one does nothing
		never  bool             // without an ADD before
		before *faultproxy.Rule // of a DEL before, that fails
		set    guardtest.Object // in the netconf; log_level: debug unless it says otherwise
		flat   string           // the flat configuration file, with DIR for the node's folder
		env    []string
		last   string // how the last IPManagement line ends; "" for no such line
		line   string // that some line has
		left   left
	}{
		"done":              {ranges: one, last: "[{<nil> <nil>}], <nil>"},
		"two ranges done":   {ranges: two, last: "[{<nil> <nil>} {<nil> <nil>}], <nil>"},
		"never allocated":   {ranges: one, never: true, last: "[], <nil>", line: "[debug] Failed to find allocation for container ID: "},
		"two, never":        {ranges: two, never: true, last: "[], <nil>", line: "[debug] Failed to find allocation for container ID: "},
		"an empty netns":    {ranges: one, env: []string{"CNI_NETNS="}, last: "[{<nil> <nil>}], <nil>"},
		"no pod's name":     {ranges: one, env: []string{"CNI_ARGS"}, left: left{1, 1}},
		"403 on PATCH":      {ranges: one, rule: patch403, last: "], <nil>", line: "[error] IPAM error updating pool (attempt: 0): ", left: left{1, 0}},
		"403, not overlaid": {ranges: one, rule: patch403, set: guardtest.Object{"enable_overlapping_ranges": false}, last: "the test says 403", left: left{1, 1}},
		"500 on pools":      {ranges: one, rule: faultproxy.Rule{Path: pools, Status: 500}, last: "[], the test says 500", left: left{1, 1}},
		"500 on DELETE": {
			ranges: one, rule: faultproxy.Rule{Method: "DELETE", Path: reservations, Status: 500},
			last: "[], the test says 500", line: "[error] Error performing UpdateOverlappingRangeAllocation: ", left: left{0, 1},
		},
		// All is released then: the DEL before has removed the reservation and not the address.
		"a reservation that is gone": {
			ranges: one, before: &patch403, last: `[], overlappingrangeipreservations.whereabouts.cni.cncf.io "10.70.0.1" not found`,
			line: "[error] Error performing UpdateOverlappingRangeAllocation: ",
		},
		"two, the second's PATCH": {
			ranges: two, rule: faultproxy.Rule{Method: "PATCH", Path: regexp.MustCompile(`/ippools/10\.71\.`), Status: 403},
			last: "[{<nil> <nil>} {<nil> <nil>}], <nil>", line: "[error] IPAM error updating pool", left: left{1, 0},
		},
		"a log file takes nothing away": {ranges: one, set: guardtest.Object{"log_file": "DIR/log"}, last: "[{<nil> <nil>}], <nil>"},
		"nor does one of the flat file": {ranges: one, flat: `{"log_file": "DIR/log"}`, last: "[{<nil> <nil>}], <nil>"},
		"the netconf's level wins":      {ranges: one, flat: `{"log_level": "error"}`, last: "[{<nil> <nil>}], <nil>"},
		"at a lower level it's silent":  {ranges: one, set: guardtest.Object{"log_level": "error"}},
		"one range by both keys": {
			ranges: one, set: single("10.70.0.0/24"), flat: `{"range": "10.99.0.0/24", "ipRanges": [{"range": "10.98.0.0/24"}]}`,
			last: "[], <nil>",
		},
		"one range by one key: the flat file's comes first": {
			ranges: one, set: guardtest.Object{"range": "", "ipRanges": []guardtest.Object{{"range": "10.70.0.0/24"}}},
			flat: `{"range": "10.99.0.0/24"}`, last: "[], <nil>", left: left{1, 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, bare, c.ranges, nil)
			p := newPod("victim")
			if !c.never {
				w.add(t, p)
			}
			if c.flat != "" {
				text := strings.ReplaceAll(c.flat, "DIR", w.Dir)
				must(t, os.WriteFile(filepath.Join(w.Dir, "flat.json"), []byte(text), 0o644))
			}
			if c.before != nil {
				w.proxy.Set(*c.before)
				w.call(t, "DEL", p, nil).OK(t)
			}
			w.proxy.Set(c.rule)
			r := w.call(t, "DEL", p, func(o *guardtest.Opts) {
				w.with(guardtest.Object{"log_level": "debug"})(o)
				for k, v := range c.set {
					if text, ok := v.(string); ok {
						v = strings.ReplaceAll(text, "DIR", w.Dir)
					}
					o.Conf.Delegate[k] = v
				}
				o.Env = c.env
			}).OK(t)
			if last := lastSign(r.Stderr); !strings.HasSuffix(last, c.last) || (last == "") != (c.last == "") {
				t.Errorf("the last line is %q, want it to end in %q", last, c.last)
			}
			if !strings.Contains(r.Stderr, c.line) {
				t.Errorf("no line has %q", c.line)
			}
			if have := w.left(t); have != c.left {
				t.Errorf("left: %+v, want %+v", have, c.left)
			}
			if t.Failed() {
				t.Log(r.Stderr)
			}
		})
	}
}

func lastSign(stderr string) string {
	all := regexp.MustCompile(`(?m)^.*\[debug\] IPManagement: .*$`).FindAllString(stderr, -1)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1]
}
