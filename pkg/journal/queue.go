package journal

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Mark is a record's place in the queue of its delegate.
type Mark struct {
	delegate string
	name     string
	pending  bool   // to be released; else attached, to be looked at
	boot     string // the first 8 digits of the boot id of due
	due      int64  // milliseconds since boot
}

// markOf is how a record's name in the queue begins: a for attached, or p with
// the boot and when it is due; then its path's hash.
func markOf(r *Record, path string) string {
	if r.State == Attached {
		return "a-" + hash(path) + "-"
	}
	return "p-" + orNone(r.Boot)[:8] + "-" + hex(uint64(r.Due), 12) + "-" + hash(path) + "-"
}

// newMark is a name that no other process gives.
func newMark(r *Record, path string) string { return markOf(r, path) + hex(uint64(os.Getpid()), 1) }

// hex is n with at least that many digits.
func hex(n uint64, digits int) string {
	text := strconv.FormatUint(n, 16)
	return strings.Repeat("0", max(0, digits-len(text))) + text
}

func orNone(boot string) string {
	if len(boot) < 8 {
		return "00000000"
	}
	return boot
}

func parseMark(delegate, name string) (Mark, bool) {
	parts := strings.Split(name, "-")
	switch {
	case parts[0] == "a" && len(parts) == 3:
		return Mark{delegate: delegate, name: name}, true
	case parts[0] != "p" || len(parts) != 5:
		return Mark{}, false
	}
	due, err := strconv.ParseInt(parts[2], 16, 64)
	return Mark{delegate, name, true, parts[1], due}, err == nil
}

func (j *Journal) putMark(delegate, mark, path string) error {
	dir := j.queue(delegate)
	rel := "../.." + strings.TrimPrefix(path, j.Dir)
	err := unix.Symlink(rel, dir+"/"+mark)
	if err == unix.ENOENT {
		if err := makeFolder(dir); err != nil {
			return err
		}
		err = unix.Symlink(rel, dir+"/"+mark)
	}
	if err != nil && err != unix.EEXIST {
		return &os.PathError{Op: "create in", Path: dir, Err: err}
	}
	return nil
}

// moveMark renames a mark. One that is lost is made anew; that it can't be is
// no reason to stop, since its record still says what it says.
func (j *Journal) moveMark(delegate, from, to, path string) {
	dir := j.queue(delegate)
	if from == to {
		return
	}
	if err := unix.Rename(dir+"/"+from, dir+"/"+to); err != nil {
		_ = j.putMark(delegate, to, path)
	}
}

func (j *Journal) dropMark(delegate, mark string) {
	_ = unix.Unlink(j.queue(delegate) + "/" + mark)
}

// maxRead bounds what one call reads of the queue: some 3,000 marks. What
// stands behind them comes up as those are released.
const maxRead = 256 << 10

// Queue returns the marks of a delegate that are due to be released, the longest
// due first, and those of attachments in the order in which they are looked at.
// It reads a bounded part of the queue, and none of the records.
func (j *Journal) Queue(delegate string) (due, attached []Mark) {
	now := Uptime()
	for _, name := range list(j.queue(delegate), maxRead) {
		m, ok := parseMark(delegate, name)
		switch {
		case !ok:
		case !m.pending:
			attached = append(attached, m)
		case m.age(j.Boot, now) >= 0:
			due = append(due, m)
		}
	}
	sort.Slice(due, func(a, b int) bool { return due[a].age(j.Boot, now) > due[b].age(j.Boot, now) })
	sort.Slice(attached, func(a, b int) bool { return attached[a].name < attached[b].name })
	return due, attached
}

// Next returns the attachment of the list whose turn it is to be looked at: they
// take turns, so that it is the one longest not looked at.
func (j *Journal) Next(attached []Mark) (Mark, bool) {
	if len(attached) == 0 {
		return Mark{}, false
	}
	// Past package os, which would ask the kernel four times as much.
	f, err := unix.Open(j.queue(attached[0].delegate)+"/cursor", unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil { // not to be written: then it is the first one's turn
		return attached[0], true
	}
	defer unix.Close(f)
	var line [64]byte
	n, _ := unix.Pread(f, line[:], 0)
	last, _, _ := strings.Cut(string(line[:max(n, 0)]), "\n")
	i := slices.IndexFunc(attached, func(m Mark) bool { return m.name > last })
	m := attached[max(i, 0)]
	_, _ = unix.Pwrite(f, []byte(m.name+"\n"), 0) // lost, it starts anew
	return m, true
}

// age is for how many milliseconds a mark has been due. Of another boot: for
// ever.
func (m Mark) age(boot string, now int64) int64 {
	if !m.pending || m.boot != orNone(boot)[:8] {
		return 1 << 40
	}
	return now - m.due
}

// list returns the names in a folder, as many as fit.
func list(dir string, limit int) []string {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	return namesIn(fd, make([]byte, min(limit, 32<<10)), limit)
}

// namesIn is list for who has the folder open, and a buffer.
func namesIn(fd int, buf []byte, limit int) []string {
	var names []string
	for limit > 0 {
		n, err := unix.ReadDirent(fd, buf)
		if err != nil || n <= 0 {
			break
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
		limit -= n
	}
	return names
}

// stale is how old a mark without a record must be to be removed: its writer
// may be about to make the record.
const stale = 10 * time.Minute

// Open locks and reads the record that a mark leads to, if nobody has it. A
// mark that leads nowhere is cleared away; nil then, and when it is taken.
func (j *Journal) Open(m Mark, warn func(string)) *Entry {
	link := filepath.Join(j.queue(m.delegate), m.name)
	to, err := os.Readlink(link)
	if err != nil {
		return nil
	}
	path := filepath.Join(filepath.Dir(link), to)
	e, err := j.open(path, dontWait)
	switch {
	case err == nil && e.Newer:
		e.Close()
	case err == nil:
		j.moveMark(m.delegate, m.name, e.Mark, path) // where an older name was left behind
		return e
	case errors.Is(err, os.ErrNotExist), errors.Is(err, errGone):
		if m.age(j.Boot, Uptime()) > stale.Milliseconds() {
			_ = unix.Unlink(link)
		}
	case unreadable(err):
		if j.setAside(path, err, warn) == nil {
			_ = unix.Unlink(link)
		}
	}
	return nil
}

// Walk calls f with the key of every record of a delegate and network ("" for
// all), in no order. It reads them without locking. Of those that can't be read or are of a
// newer version it calls closed, with what their names say: the container is ""
// where a name is too long to say it.
func (j *Journal) Walk(delegate, network string, f, closed func(Key)) {
	suffix := "@" + asName(network, 90) + "@" + asName(delegate, 90)
	for _, container := range list(j.records(), math.MaxInt) {
		dir := filepath.Join(j.records(), container)
		for _, file := range list(dir, math.MaxInt) {
			if network != "" && !strings.HasSuffix(file, suffix) {
				continue
			}
			r, err := j.peek(filepath.Join(dir, file))
			switch {
			case errors.Is(err, os.ErrNotExist):
			case err != nil:
				closed(named(container, file))
			default:
				f(r.Key)
			}
		}
	}
}

// named is the key that the names of a record's folder and file say.
func named(container, file string) Key {
	parts := append(strings.Split(file, "@"), "", "")
	return Key{Container: fromName(container), IfName: fromName(parts[0]), Network: fromName(parts[1]), Delegate: fromName(parts[2])}
}

// Try locks the record of a key if it is there and nobody has it; nil if not.
func (j *Journal) Try(k Key) *Entry {
	e, err := j.open(j.file(k), dontWait)
	if err != nil || e.Newer {
		if err == nil {
			e.Close()
		}
		return nil
	}
	return e
}

// Pending calls f with the marks of a delegate's records of a network that are
// to be released or on their way, due or not, until f returns false.
func (j *Journal) Pending(delegate, network string, f func(Mark) bool) {
	dir := j.queue(delegate)
	suffix := "@" + asName(network, 90) + "@" + asName(delegate, 90)
	for _, name := range list(dir, maxRead) {
		m, ok := parseMark(delegate, name)
		if !ok || !m.pending {
			continue
		}
		if to, err := os.Readlink(filepath.Join(dir, name)); err != nil || !strings.HasSuffix(to, suffix) {
			continue
		}
		if !f(m) {
			return
		}
	}
}

// Leads reports whether a mark is of the record of that key.
func (j *Journal) Leads(m Mark, k Key) bool { return strings.Contains(m.name, hash(j.file(k))) }

// Has reports whether there is a record of that key, readable or not.
func (j *Journal) Has(k Key) bool {
	_, err := os.Lstat(j.file(k))
	return err == nil
}

// Await waits for whoever is releasing the record that a mark leads to, until
// ctx or until is over. It returns false at once if nobody is. An ADD on its way
// is not waited for: it may be waiting for us.
func (j *Journal) Await(ctx context.Context, until time.Time, m Mark) bool {
	dir := j.queue(m.delegate)
	to, err := os.Readlink(filepath.Join(dir, m.name))
	if err != nil {
		return false
	}
	path := filepath.Join(dir, to)
	if r, err := j.peek(path); err != nil || r.State != Releasing {
		return false
	}
	waited := false
	e, err := j.open(path, func(f handle) error { waited = true; return wait(ctx, until, f) })
	if err == nil {
		e.Close()
	}
	return waited
}
