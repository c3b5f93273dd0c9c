package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// gcDisabled returns the networks whose configuration has disableGC, with its
// file. One that can't be read may have it: nothing is done then.
func gcDisabled(dir string) (map[string]string, error) {
	f, err := readFolder(dir)
	if err != nil && !errors.Is(err, errNoConf) {
		return nil, err
	}
	disabled := map[string]string{}
	for _, file := range f.files {
		if err := file.source.gcDisabled(disabled); err != nil {
			return nil, err
		}
	}
	return disabled, nil
}

func (s source) gcDisabled(disabled map[string]string) error {
	var conf struct {
		Name      string `json:"name"`
		DisableGC any    `json:"disableGC"` // a bool, or as the CNI library reads it also a string
	}
	if err := json.Unmarshal(s.text, &conf); err != nil {
		return fmt.Errorf("%s can't be read, and may say disableGC: mend or remove it: %w", s.path, err)
	}
	switch v := conf.DisableGC.(type) {
	case nil:
		return nil
	case bool:
		if v {
			disabled[conf.Name] = s.path
		}
		return nil
	case string:
		switch strings.ToLower(v) {
		case "true":
			disabled[conf.Name] = s.path
			return nil
		case "false":
			return nil
		}
	}
	return fmt.Errorf("%s: disableGC is %v: want true or false", s.path, conf.DisableGC)
}
