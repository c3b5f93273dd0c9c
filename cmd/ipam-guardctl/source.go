package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/containernetworking/cni/libcni"

	"github.com/ipam-guard/ipam-guard/pkg/conflist"
)

// source is a configuration and where it came from.
type source struct {
	path string // "" for stdin
	text []byte
	conf conflist.Conf
	nad  bool // a NetworkAttachmentDefinition's
}

func (s source) name() string {
	if s.path == "" {
		return "stdin"
	}
	return s.path
}

// half is how long a file that somebody is writing may take to be whole.
const half = 2 * time.Second

// sources reads what an argument names: stdin, a file, or of a folder the file
// that the runtime uses, or the one of a network.
func (t *tool) source(arg, network string) (source, error) {
	if arg == "-" {
		text, err := io.ReadAll(t.in)
		if err != nil {
			return source{}, err
		}
		s := source{text: text, nad: true}
		s.conf, err = conflist.Read(text)
		err = placed(text, err)
		if kind, _ := conflist.String(s.conf.Value("kind")); err == nil && kind == "NetworkAttachmentDefinition" {
			err = errors.New("this is the whole object: give its spec.config alone, as kubectl get -o jsonpath='{.spec.config}' prints it")
		}
		return s, named("stdin", err)
	}
	info, err := os.Stat(arg)
	if err != nil {
		return source{}, err
	}
	if !info.IsDir() {
		return readFile(arg)
	}
	files, err := readFolder(arg)
	if err != nil {
		return source{}, err
	}
	return files.pick(network)
}

// readFile reads one file. One that is only half there is looked at again:
// somebody may be writing it.
func readFile(path string) (source, error) {
	for end := time.Now().Add(half); ; time.Sleep(50 * time.Millisecond) {
		text, err := os.ReadFile(path)
		if err != nil {
			return source{path: path}, err
		}
		s := source{path: path, text: text}
		s.conf, err = conflist.Read(text)
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			return s, named(path, placed(text, err))
		}
		if time.Now().After(end) {
			return s, named(path, fmt.Errorf("%w; it looks half written, and stayed so for %s", err, half))
		}
	}
}

func named(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}

// placed adds to an error about a text where in it that is, if it is no JSON there.
func placed(text []byte, err error) error {
	if at := placeIn(text); err != nil && at != "" {
		return fmt.Errorf("%w (%s)", err, at)
	}
	return err
}

// placeIn says where a text stops being JSON, as editors count; "" if it is JSON.
func placeIn(text []byte) string {
	var wrong *json.SyntaxError
	if err := json.Unmarshal(text, new(any)); !errors.As(err, &wrong) || wrong.Offset == 0 {
		return ""
	}
	before := text[:wrong.Offset-1]
	line := before[bytes.LastIndexByte(before, '\n')+1:]
	return fmt.Sprintf("line %d, column %d", bytes.Count(before, []byte{'\n'})+1, utf8.RuneCount(line)+1)
}

// folder is a conf folder, in the order in which runtimes read it.
type folder struct {
	dir   string
	files []folderFile
}

type folderFile struct {
	source
	refused error // why no runtime takes it
	edited  error // why this tool would not edit it; nil where refused isn't
}

// errNoConf says that there is no configuration in a folder, or no folder.
var errNoConf = errors.New("no configuration")

// extensions of the files that runtimes look at.
var extensions = []string{".conf", ".conflist", ".json"}

func readFolder(dir string) (folder, error) {
	f := folder{dir: dir}
	paths, err := libcni.ConfFiles(dir, extensions)
	if err != nil {
		return f, err
	}
	slices.Sort(paths)
	for _, path := range paths {
		s, err := readFile(path)
		file := folderFile{source: s, edited: err}
		if os.IsNotExist(err) {
			continue // gone meanwhile
		}
		file.refused = loadable(path, s.text)
		f.files = append(f.files, file)
	}
	if len(f.files) == 0 {
		return f, fmt.Errorf("%s has %w: no file ends in %s", dir, errNoConf, strings.Join(extensions, ", "))
	}
	return f, nil
}

// loadable says why the CNI library, or a runtime, would not take a file: as
// containerd's go-cni and CRI-O's ocicni read it.
func loadable(path string, text []byte) error {
	if filepath.Ext(path) == ".conflist" {
		_, err := libcni.NetworkConfFromBytes(text)
		if err == nil {
			_, err = libcni.NetworkConfFromFile(path) // with the plugins in its folder, if it has some
		}
		return err
	}
	conf, err := libcni.NetworkPluginConfFromBytes(text)
	if err == nil && conf.Network.Name == "" {
		err = errors.New("no name")
	}
	if o, perr := conflist.Parse(text); perr == nil && o.Value("type") == nil && o.Value("plugins") != nil {
		return errors.New("no type: a list of plugins is only read from a file that ends in .conflist")
	}
	return err
}

// pick returns the file that counts: of a network, the first of its name;
// without a name the first of all. containerd loads no network at all if that
// one is no good, and CRI-O passes it over, so it is nothing to guess about.
func (f folder) pick(network string) (source, error) {
	var names []string
	for _, file := range f.files {
		if network != "" && file.conf.Name != network {
			names = append(names, file.conf.Name)
			continue
		}
		if file.edited != nil {
			return file.source, file.edited
		}
		if file.refused != nil {
			return file.source, fmt.Errorf("%s comes first in %s, but no runtime can use it (%w): mend or remove it, or say --network",
				file.path, f.dir, file.refused)
		}
		return file.source, nil
	}
	return source{}, fmt.Errorf("%s has no network %q, only %s", f.dir, network, strings.Join(names, ", "))
}
