package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// object is the part of a netconf that is ours.
type object struct {
	Type   string  `json:"type"`
	Dir    string  `json:"dir"`
	Script scripts `json:"script"`
	Pool   int     `json:"pool"`
}

func (o *object) speaksToUs() bool { return o != nil && (o.Dir != "" || o.Script != nil) }

// scripts holds a string or a list of strings for each verb.
type scripts map[string]any

type netconf struct {
	CNIVersion string `json:"cniVersion"`
	Name       string `json:"name"`
	Valid      []struct {
		ContainerID string `json:"containerID"`
		IfName      string `json:"ifname"`
	} `json:"cni.dev/valid-attachments"`

	own object
}

// decode finds our own object: `ipam` or the top level, first by its type,
// then by its keys. Bad JSON is left to the script, as in a plugin that
// doesn't look.
func decode(base string, stdin []byte) netconf {
	var nc netconf
	_ = json.Unmarshal(stdin, &nc) // a prevResult or list of a wrong type is not our business
	var top object
	_ = json.Unmarshal(stdin, &top)
	var raw map[string]json.RawMessage
	_ = json.Unmarshal(stdin, &raw)
	var ipam object
	_ = json.Unmarshal(raw["ipam"], &ipam)

	nc.own = top
	switch {
	case ipam.speaksToUs() && ipam.Type == base:
		nc.own = ipam
	case top.speaksToUs() && top.Type == base:
	case ipam.speaksToUs():
		nc.own = ipam
	}
	return nc
}

// pick returns the script of the n-th call of a verb.
func (s scripts) pick(verb string, n int) (string, error) {
	v, ok := s[verb]
	if !ok {
		v, ok = s["*"]
	}
	if !ok {
		return map[string]string{"ADD": "alloc", "DEL": "free", "VERSION": "version"}[verb], nil
	}
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	if len(list) == 0 {
		return "", nil
	}
	text, ok := list[min(n, len(list))-1].(string)
	if !ok {
		return "", fmt.Errorf("script of %s: want a string or a list of strings, have %v", verb, v)
	}
	return text, nil
}

// override reads DIR/script.json, by which a test heals or breaks a delegate
// whose netconf it can't change any more.
func override(dir string, s scripts) (scripts, error) {
	path := filepath.Join(dir, "script.json")
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	s = nil
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}
