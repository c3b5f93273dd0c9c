package guardtest

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// Node is one simulated machine. Its folders for locks and records are not
// there until the guard makes them.
type Node struct {
	Dir      string // the working folder of all that runs here
	Bin      string // CNI_PATH: fake, and ipam-guard once it is needed
	FakeDir  string // the delegate's leases and records
	LockDir  string
	StateDir string
	LogFile  string

	guard func() string
}

// New makes a node whose delegate is called fake and whose node file, in place
// of the product's, moves lockDir, stateDir and log.file into it.
func New(t testing.TB) *Node {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	n := &Node{
		Dir:      dir,
		Bin:      filepath.Join(dir, "bin"),
		FakeDir:  filepath.Join(dir, "fake"),
		LockDir:  filepath.Join(dir, "lock"),
		StateDir: filepath.Join(dir, "state"),
		LogFile:  filepath.Join(dir, "ipam-guard.log"),
	}
	n.guard = sync.OnceValue(func() string { return n.Install(t, Build(t, Guard), "bin", "ipam-guard") })
	if err := os.Mkdir(n.FakeDir, 0o755); err != nil {
		t.Fatal(err)
	}
	n.Install(t, Build(t, Fake), "bin", "fake")
	n.SetNodeFile(t, Object{})
	t.Cleanup(func() { n.cleanUp(t) })
	return n
}

// Guard installs the plugin, if it isn't yet, and returns its path.
func (n *Node) Guard() string { return n.guard() }

// Install puts a binary into a folder of the node under a name, as a hard
// link where that is possible: a file that was never open for writing here
// can't be "text file busy".
func (n *Node) Install(t testing.TB, binary, folder, name string) string {
	t.Helper()
	path := filepath.Join(n.Dir, folder, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Link(binary, path) == nil {
		return path
	}
	src, err := os.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	writeExecutable(t, path, src)
	return path
}

// InstallScript puts a shell script into CNI_PATH under a name.
func (n *Node) InstallScript(t testing.TB, name, body string) string {
	t.Helper()
	path := filepath.Join(n.Bin, name)
	r, w := io.Pipe()
	go func() {
		_, err := io.WriteString(w, "#!/bin/sh\n"+body+"\n")
		w.CloseWithError(err)
	}()
	writeExecutable(t, path, r)
	return path
}

// writeExecutable keeps every fork of this process out while the file is open:
// a child that has it open for writing makes it "text file busy".
func writeExecutable(t testing.TB, path string, src io.Reader) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	dst, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(dst, src)
	if cerr := dst.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		t.Fatal(err)
	}
}

// SetNodeFile writes the node's file: a string or []byte as it is, so that it
// can be broken; anything else as JSON, an Object with the node's folders as
// its defaults unless it says otherwise.
func (n *Node) SetNodeFile(t testing.TB, content any) {
	t.Helper()
	var data []byte
	switch c := content.(type) {
	case string:
		data = []byte(c)
	case []byte:
		data = c
	case Object:
		data = encode(merge(Object{"defaults": n.folders()}, c))
	default:
		data = encode(c)
	}
	n.replace(t, filepath.Join(n.Dir, nodeFile), data)
}

// SetScript overrides whatever script the delegate's netconf has, and counts
// calls anew; nil gives the netconf its say again.
func (n *Node) SetScript(t testing.TB, s Script) {
	t.Helper()
	counts, _ := filepath.Glob(filepath.Join(n.FakeDir, "nth.*"))
	for _, c := range counts {
		_ = os.Remove(c)
	}
	path := filepath.Join(n.FakeDir, "script.json")
	if s == nil {
		_ = os.Remove(path)
		return
	}
	n.replace(t, path, encode(s))
}

// Touch makes the file that a `waitfile` of the delegate waits for.
func (n *Node) Touch(t testing.TB, name string) {
	t.Helper()
	n.replace(t, filepath.Join(n.FakeDir, name), nil)
}

func (n *Node) folders() Object {
	return Object{"lockDir": n.LockDir, "stateDir": n.StateDir, "log": Object{"file": n.LogFile}}
}

func (n *Node) replace(t testing.TB, path string, data []byte) {
	t.Helper()
	tmp := path + ".new"
	err := os.WriteFile(tmp, data, 0o644)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Open lets other users run and use all of this node: its folders and those
// above it up to the temporary folder may be entered, its own also written.
func (n *Node) Open(t testing.TB) {
	t.Helper()
	for _, d := range []string{n.Dir, n.FakeDir} {
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	top, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for d := filepath.Dir(n.Dir); d != top && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // a map of a test's own making
	}
	return data
}
