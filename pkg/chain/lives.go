package chain

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// mayRelease says whether a record may be released. Of an attachment nobody has
// asked to be, its namespace's path being gone for ten minutes is not enough:
// somebody may live on in there.
func (op *operation) mayRelease(r *journal.Record, by journal.By) bool {
	return op.journal.Releasable(r, by) && !(by == journal.Anyone && r.State == journal.Attached && livesOn(r))
}

// livesOn says that a process is in the network namespace of an attachment, and
// has one of its addresses there. The namespace's number alone would say nothing:
// once it is free the kernel gives it to the next one.
func livesOn(r *journal.Record) bool {
	locals := localLines(r.Result)
	processes, _ := os.ReadDir("/proc")
	for _, p := range processes {
		dir := "/proc/" + p.Name()
		var st unix.Stat_t
		if name := p.Name()[0]; name < '1' || name > '9' || unix.Stat(dir+"/ns/net", &st) != nil {
			continue
		}
		if st.Ino == r.Netns.Inode && uint64(st.Dev) == r.Netns.Dev && hasLocal(dir, locals) {
			return true
		}
	}
	return false
}

// localLines is how the kernel tells of the addresses of a result in fib_trie and
// if_inet6, where they are an interface's:
//
//	|-- 10.9.0.2
//	fd000000000000000000000000000002 02 40 00 80     eth0
func localLines(result []byte) (lines []string) {
	var r struct {
		IPs []struct{ Address string }
		IP4 struct{ IP string }
		IP6 struct{ IP string }
	}
	_ = json.Unmarshal(result, &r) // what it isn't has no addresses
	all := []string{r.IP4.IP, r.IP6.IP}
	for _, ip := range r.IPs {
		all = append(all, ip.Address)
	}
	for _, cidr := range all {
		switch addr, _, _ := strings.Cut(cidr, "/"); {
		case strings.Contains(addr, ":"):
			lines = append(lines, "\n"+digits(addr)+" ")
		case addr != "":
			lines = append(lines, "|-- "+addr+"\n")
		}
	}
	return lines
}

// digits are the 32 of an IPv6 address.
func digits(addr string) string {
	half := func(side string) (out string) {
		for group := range strings.SplitSeq(side, ":") {
			out += strings.Repeat("0", (4-len(group))&3) + group
		}
		return out
	}
	left, right, gap := strings.Cut(strings.ToLower(addr), "::")
	if !gap {
		return half(left)
	}
	l, r := half(left), half(right)
	return l + strings.Repeat("0", max(0, 32-len(l)-len(r))) + r
}

func hasLocal(dir string, locals []string) bool {
	v4, _ := os.ReadFile(dir + "/net/fib_trie")
	v6, _ := os.ReadFile(dir + "/net/if_inet6")
	text := bytes.Join([][]byte{v4, v6}, []byte("\n"))
	for _, l := range locals {
		if bytes.Contains(text, []byte(l)) {
			return true
		}
	}
	return false
}
