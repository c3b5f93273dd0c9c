package main_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// doctored is what doctor says where something is mounted over the node's folders.
// A mend that it names is done, and it is asked again.
type doctored struct {
	mount string // a shell's commands
	find  string // what a finding says
	mend  string // the beginning of its command, where that can be done here
}

func doctoredFolders() map[string]doctored {
	const tmpfs = "mount -t tmpfs -o size=64k "
	return map[string]doctored{
		"records on tmpfs":       {tmpfs + "t state", "/state lies on tmpfs, which does not last", ""},
		"plugins not to be run":  {"mount --bind cni cni && mount -o remount,bind,noexec cni", "/cni is on a file system mounted noexec", "mount -o remount,exec "},
		"records read-only":      {"mount --bind state state && mount -o remount,bind,ro state", "records in STATE: write to STATE: read-only file system", "mount -o remount,rw "},
		"no room for locks":      {tmpfs + "t lock && ! head -c 1m /dev/zero 2>/dev/null >lock/large", "locks in LOCK: no room on that file system", ""},
		"no files more for logs": {"mount -t tmpfs -o nr_inodes=2 t logs && touch logs/one", "log in LOGS: no room on that file system", ""},
		"records by FUSE":        {"mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 t state", "records in STATE, which is on FUSE", ""},
	}
}

// What is wrong with the folders that the guard depends on, on real file systems,
// in a mount namespace of its own.
func TestDoctorOfFolders(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	for name, c := range doctoredFolders() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.write(t, "net.d/10-pods.conflist", podsConf)
			guardedNode(t, n)
			n.write(t, "node-config.json", strings.Replace(read(t, n.path("node-config.json")), `"file": "`+n.path("log"), `"file": "`+n.path("logs/log"), 1))
			for _, dir := range []string{"state", "lock", "logs"} {
				if err := os.Mkdir(n.path(dir), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			find := strings.NewReplacer("STATE", n.path("state"), "LOCK", n.path("lock"), "LOGS", n.path("logs")).Replace(c.find)
			before, after, _ := strings.Cut(n.doctored(t, c), "\nMENDED\n")
			others := strings.Contains(before, "FINDING  folder") && strings.Count(before, "FINDING") > 1
			if others || !strings.Contains(before, find) || !strings.Contains(before, c.mend) {
				t.Errorf("not %q alone\n%s", find, before)
			}
			if c.mend != "" && !strings.Contains(after, "\n0 findings\n") {
				t.Errorf("its command does not mend it:\n%s", after)
			}
		})
	}
	n := newNode(t)
	n.write(t, "net.d/10-pods.conflist", podsConf)
	guardedNode(t, n)
	if out := n.doctored(t, doctored{mount: "true"}); !strings.Contains(out, "\n0 findings\n") {
		t.Errorf("nothing is mounted:\n%s", out)
	}
}

// doctored runs doctor where that is mounted, and once more after its command.
func (n node) doctored(t *testing.T, c doctored) string {
	t.Helper()
	script := "set -e\n" + c.mount + "\n" + `doctor() { ipam-guardctl doctor --conf-dir "$PWD/net.d" --cni-path "$PWD/cni" || [ $? = 3 ]; }
		out=$(doctor); echo "$out"
		[ -z "$MEND" ] || { eval "$(echo "$out" | sed -n "s/^ *command *\($MEND.*\)/\1/p")"; echo MENDED; doctor; }`
	cmd := exec.Command("unshare", "-m", "sh", "-c", script)
	cmd.Dir = n.dir
	cmd.Env = []string{"PATH=" + n.path("tool") + ":" + os.Getenv("PATH"), "MEND=" + c.mend, "FAKEIPAM_DIR=" + n.path("fake")}
	if strings.Contains(c.mount, "fuse") {
		fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
		if err != nil {
			t.Skipf("this machine has no FUSE: %v", err)
		}
		defer fuse.Close()
		over, ended := make(chan struct{}), make(chan struct{})
		defer func() { close(ended); <-over }()
		go func() { defer close(over); serveEmpty(fuse, ended) }()
		cmd.ExtraFiles = []*os.File{fuse}
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return out.String()
}

// serveEmpty is a file system with one empty folder, until it is unmounted, or ended
// and never was mounted: the kernel's end of FUSE is real, and so is what statfs
// says of it.
func serveEmpty(fuse *os.File, ended <-chan struct{}) {
	const (
		getattr, statfs, initialize = 3, 17, 26
		header                      = 16
	)
	request := make([]byte, 128<<10)
	for {
		n, err := unix.Read(int(fuse.Fd()), request)
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINTR) { // not mounted yet
			select {
			case <-ended:
				return
			case <-time.After(time.Millisecond):
				continue
			}
		}
		if err != nil || n < 40 {
			return
		}
		le := binary.LittleEndian
		answer := make([]byte, header, 256)
		copy(answer[8:], request[8:16]) // which request it is of
		switch le.Uint32(request[4:]) {
		case initialize:
			body := make([]byte, 64)
			le.PutUint32(body, 7)
			le.PutUint32(body[4:], 31)
			le.PutUint32(body[20:], 4096)
			answer = append(answer, body...)
		case getattr:
			body := make([]byte, 104)
			le.PutUint64(body[16:], 1)                     // inode
			le.PutUint32(body[16+60:], unix.S_IFDIR|0o700) // mode
			le.PutUint32(body[16+64:], 2)                  // links
			answer = append(answer, body...)
		case statfs:
			body := make([]byte, 80)
			for i := range 5 { // blocks, free, available, files, free
				le.PutUint64(body[8*i:], 1<<20)
			}
			le.PutUint32(body[40:], 4096)
			le.PutUint32(body[44:], 255)
			le.PutUint32(body[48:], 4096)
			answer = append(answer, body...)
		default:
			le.PutUint32(answer[4:], ^uint32(unix.ENOSYS)+1) // negative
		}
		le.PutUint32(answer, uint32(len(answer)))
		if _, err := unix.Write(int(fuse.Fd()), answer); err != nil && !errors.Is(err, unix.ENOENT) {
			return
		}
	}
}
