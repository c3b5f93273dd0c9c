// Package journal keeps one small file per attachment, so that nothing that
// must be released is forgotten, and nothing that lives is released.
//
// It promises:
//
//   - A record is either there, as its last writer left it, or not there. A
//     SIGKILL at any point loses at most the change that was being written.
//   - The file is its own lock. It is locked by its writer before it can be
//     seen; a record whose lock is free has no writer. One operation at a time
//     has a key's record.
//   - A record is found by its key, and the next ones to release or to look at
//     by a bounded read of the queue, however many there are.
//   - Nothing is synced but what was promised (Entry.Sync).
//   - What can't be read is set aside, never deleted; what a newer version
//     wrote is left alone.
//
// The layout, below the folder:
//
//	records/CONTAINER/IFNAME@NETWORK@DELEGATE   the records, lines of JSON
//	queue/DELEGATE/MARK                         a symbolic link to each; the name says when it is due
//	aside/                                      what could not be read
//
// Who may release what, and when, is said by Record.Releasable. Releasing it is
// left to pkg/chain.
package journal

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Journal is the records of a node.
type Journal struct {
	Dir string
	Node
}

func (j *Journal) records() string { return j.Dir + "/records" }
func (j *Journal) queue(delegate string) string {
	return j.Dir + "/queue/" + asName(delegate, 150)
}

// folder and file say where a key's record is.
func (j *Journal) folder(container string) string {
	return j.records() + "/" + asName(container, 150)
}

func (j *Journal) file(k Key) string {
	return j.folder(k.Container) + "/" + asName(k.IfName, 50) + "@" + asName(k.Network, 90) + "@" + asName(k.Delegate, 90)
}

// asName makes a part of a file's name of any text: what can't stand there is
// escaped, what is longer than most is cut and told apart by a hash.
func asName(text string, most int) string {
	if plain(text) && len(text) <= most {
		return text
	}
	var b strings.Builder
	for _, c := range []byte(text) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.' && b.Len() > 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	name := b.String()
	if name == "" {
		return "%"
	}
	if len(name) <= most {
		return name
	}
	sum := hash(text)
	return name[:most-len(sum)-1] + "%" + sum
}

// fromName is the text that asName made the name of, "" where it was cut.
func fromName(name string) string {
	var text []byte
	for i := 0; i < len(name); i++ {
		if name[i] != '%' {
			text = append(text, name[i])
			continue
		}
		if i+3 > len(name) {
			return ""
		}
		c, err := strconv.ParseUint(name[i+1:i+3], 16, 8)
		if err != nil {
			return ""
		}
		text = append(text, byte(c))
		i += 2
	}
	if asName(string(text), len(name)) != name {
		return ""
	}
	return string(text)
}

// plain reports whether nothing of text has to be escaped.
func plain(text string) bool {
	for i, c := range []byte(text) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
		if !letter && (c != '.' || i == 0) {
			return false
		}
	}
	return text != ""
}

func hash(text string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return hex(h.Sum64(), 16)
}

// Other returns the key of the one record that this container and interface
// have under another network or delegate; ok is false if there is none, or
// more than one.
func (j *Journal) Other(k Key) (other Key, ok bool) {
	own, prefix := filepath.Base(j.file(k)), asName(k.IfName, 50)+"@"
	for _, name := range list(j.folder(k.Container), maxRead) {
		if name == own || !strings.HasPrefix(name, prefix) {
			continue
		}
		r, err := j.peek(filepath.Join(j.folder(k.Container), name))
		if err != nil {
			continue
		}
		if ok {
			return Key{}, false
		}
		other, ok = r.Key, true
	}
	return other, ok
}

// peek reads a record without locking it.
func (j *Journal) peek(path string) (Record, error) {
	f, err := os.OpenFile(path, unix.O_NOFOLLOW|unix.O_NONBLOCK, 0) // who put a pipe there must not hold us
	if err != nil {
		return Record{}, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() || st.Size() > maxRecord {
		return Record{}, brokenError{errors.New("too large for a record, or not a regular file")}
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return Record{}, err
	}
	r, _, err := parse(text)
	return r, err
}

// Writable says why records can't be written, nil if they can. A folder that
// isn't there yet counts as writable if it can be made.
func (j *Journal) Writable() error {
	for dir := j.Dir; ; dir = filepath.Dir(dir) {
		err := unix.Access(dir+"/.", unix.W_OK|unix.X_OK)
		if err == unix.ENOENT && dir != filepath.Dir(dir) {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "write to", Path: dir, Err: err}
		}
		return nil
	}
}

// Lasting says why the folder does not outlive a reboot, nil if it does.
func (j *Journal) Lasting() error {
	kinds := map[int64]string{unix.TMPFS_MAGIC: "tmpfs", unix.RAMFS_MAGIC: "ramfs", unix.OVERLAYFS_SUPER_MAGIC: "overlay"}
	var st unix.Statfs_t
	if err := unix.Statfs(j.Dir, &st); err != nil {
		return &os.PathError{Op: "statfs", Path: j.Dir, Err: err}
	}
	if kind, ok := kinds[int64(st.Type)]; ok { //nolint:unconvert // 32 bits on some machines
		return fmt.Errorf("%s lies on %s, which does not last: set stateDir to a folder on a disk", j.Dir, kind)
	}
	return nil
}
