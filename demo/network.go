package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"

	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

type object = map[string]any

// network is one conflist on the node, with a store of its own.
type network struct {
	node *node
	name string
	list *libcni.NetworkConfigList
}

// guarded has ipam-guard where a conflist has its ipam object. Its timeouts are
// short, so that nobody has to wait long for what hangs. onError is the policy's.
func (n *node) guarded(onError string) (*network, error) {
	guard := object{
		"timeout":  object{"add": "5s", "del": "1500ms"},
		"deadline": object{"add": "60s", "del": "40s"},
		"retry":    object{"attempts": 3, "backoff": "100ms", "maxBackoff": "1s"},
		"lockDir":  filepath.Join(n.dir, "lock"),
		"stateDir": n.records().Dir,
		"policy":   object{"onError": onError},
		"log":      object{"file": n.logFile()},
	}
	return n.network("guarded", object{"type": "ipam-guard", "delegate": n.delegate(), "guard": guard})
}

// bare is the same network without the guard.
func (n *node) bare() (*network, error) { return n.network("bare", n.delegate()) }

func (n *node) delegate() object {
	return object{
		"type": moodyName, "dataDir": n.store(),
		"ranges": [][]object{{{"subnet": "10.88.0.0/16"}}},
	}
}

func (n *node) network(name string, ipam object) (*network, error) {
	plugin := object{"type": "bridge", "bridge": name + "0", "ipMasq": false, "ipam": ipam}
	if n.netns == nil {
		plugin = object{"type": ipam["type"], "ipam": ipam}
	}
	text, err := json.Marshal(object{"cniVersion": "1.0.0", "name": name, "plugins": []object{plugin}})
	if err != nil {
		return nil, err
	}
	list, err := libcni.ConfListFromBytes(text)
	return &network{node: n, name: name, list: list}, err
}

func (n *node) store() string   { return filepath.Join(n.dir, "networks") }
func (n *node) logFile() string { return filepath.Join(n.dir, "ipam-guard.log") }

// records are the guard's.
func (n *node) records() *journal.Journal {
	return &journal.Journal{Dir: filepath.Join(n.dir, "state")}
}

// pending counts the records of addresses that are still to be released.
func (nw *network) pending() int {
	count := 0
	nw.node.records().Pending(moodyName, nw.name, func(journal.Mark) bool {
		count++
		return true
	})
	return count
}

// reserved counts the addresses that host-local holds as taken: a file each,
// named like the address, that begins with the container's name. With pods, only
// theirs count.
func (nw *network) reserved(pods ...pod) (int, error) {
	dir := filepath.Join(nw.node.store(), nw.name)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	count := 0
	for _, e := range entries {
		if net.ParseIP(e.Name()) == nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return 0, err
		}
		owner, _, _ := strings.Cut(string(text), "\r\n")
		if len(pods) == 0 || slices.ContainsFunc(pods, func(p pod) bool { return p.name == owner }) {
			count++
		}
	}
	return count, nil
}
