package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/libcni"
)

type object = map[string]any

// network is one conflist on the node, with a store of its own.
type network struct {
	node *node
	name string
	list *libcni.NetworkConfigList
}

// guarded has ipam-guard where a conflist has its ipam object. Its timeouts are
// short, so that nobody has to wait long for what hangs.
func (n *node) guarded() (*network, error) {
	guard := object{
		"timeout":  object{"add": "5s", "del": "1500ms"},
		"deadline": object{"add": "60s", "del": "40s"},
		"retry":    object{"attempts": 3, "backoff": "100ms", "maxBackoff": "1s"},
		"lockDir":  filepath.Join(n.dir, "lock"),
		"stateDir": filepath.Join(n.dir, "state"),
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

// reserved counts the addresses that host-local holds as taken: a file each,
// named like the address.
func (nw *network) reserved() (int, error) {
	entries, err := os.ReadDir(filepath.Join(nw.node.store(), nw.name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	count := 0
	for _, e := range entries {
		if net.ParseIP(e.Name()) != nil {
			count++
		}
	}
	return count, nil
}
