package main

import (
	"time"

	"github.com/ipam-guard/ipam-guard/pkg/chain"
)

// times is the arithmetic of one verb.
type times struct {
	Verb     string `json:"verb"`
	Timeout  string `json:"timeout"`
	Need     string `json:"need"`     // what an attempt must have left of the deadline
	Deadline string `json:"deadline"` // all that a call may take
	Wait     string `json:"wait"`     // the longest wait for the lock
}

func timesOf(s *chain.Settings) []times {
	var all []times
	for _, verb := range []string{"ADD", "DEL", "GC"} {
		need, deadline := s.Need(verb), s.Deadline.Of(verb)
		all = append(all, times{verb, s.Timeout.Of(verb).String(), need.String(), deadline.String(), (deadline - need).String()})
	}
	return all
}

// limits are what runtimes allow for all networks of a pod.
var limits = []struct {
	runtime string // "": whichever
	verb    string
	limit   time.Duration
	whose   string
}{
	{crio, "DEL", time.Minute, "CRI-O stops all DELs of a pod after 1m0s, and sends none again"},
	{"", "DEL", 2 * time.Minute, "kubelet gives up on stopping a pod after 2m0s, and tries again"},
	{"", "ADD", 4 * time.Minute, "kubelet gives up on starting a pod after 4m0s"},
}

// lookAtTimes adds the deadlines of all guards that a pod meets up.
func (v *validated) lookAtTimes(networks int) {
	for _, l := range limits {
		var sum time.Duration
		for _, g := range v.Guards {
			sum += g.settings.Deadline.Of(l.verb)
		}
		if sum *= time.Duration(networks); sum > l.limit {
			v.find("%s may take %s: deadlines of %s, times %s; %s", l.verb, sum, count(len(v.Guards), "guard"), count(networks, "network"), l.whose)
		}
	}
}
