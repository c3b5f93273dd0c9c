package hostlock

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/pkg/conflist"
)

// Holder is what the lock file says about who holds it: one JSON object, for people. It is there from right after
// locking until right before unlocking; what is there at another time was left by a guard that was killed.
type Holder struct {
	PID       int       `json:"pid"`
	Start     uint64    `json:"start"`           // field 22 of /proc/PID/stat; 0: unknown
	PGID      int       `json:"pgid,omitempty"`  // the delegate's process group, once there is one
	PIDNS     uint64    `json:"pidns,omitempty"` // inode of /proc/PID/ns/pid
	Verb      string    `json:"verb"`
	Network   string    `json:"network"`
	Container string    `json:"container"`
	IfName    string    `json:"ifname"`
	Since     time.Time `json:"since"`
}

// String is one line for an error message. Nothing in it can break the line, whatever the file said.
func (h Holder) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "pid %d", h.PID)
	for _, f := range []struct{ name, value string }{
		{"verb", h.Verb}, {"network", h.Network}, {"container", h.Container}, {"ifname", h.IfName},
	} {
		if f.value != "" {
			fmt.Fprintf(&b, ", %s %.80q", f.name, f.value)
		}
	}
	if !h.Since.IsZero() {
		fmt.Fprintf(&b, ", since %s", h.Since.Format(time.RFC3339))
	}
	return b.String()
}

// json is what is written, twice for every pod: by hand, reflection would cost more than the lock.
func (h *Holder) json(b []byte) []byte {
	number := func(b []byte, name string, n uint64) []byte {
		return strconv.AppendUint(append(b, name...), n, 10)
	}
	b = number(b, `{"pid":`, uint64(h.PID))
	b = number(b, `,"start":`, h.Start)
	if h.PGID != 0 {
		b = number(b, `,"pgid":`, uint64(h.PGID))
	}
	if h.PIDNS != 0 {
		b = number(b, `,"pidns":`, h.PIDNS)
	}
	b = conflist.AppendString(append(b, `,"verb":`...), h.Verb)
	b = conflist.AppendString(append(b, `,"network":`...), h.Network)
	b = conflist.AppendString(append(b, `,"container":`...), h.Container)
	b = conflist.AppendString(append(b, `,"ifname":`...), h.IfName)
	b = h.Since.AppendFormat(append(b, `,"since":"`...), time.RFC3339Nano)
	return append(b, `"}`...)
}

// readHolder returns what the file says, nil if that is nothing that can be read.
func readHolder(path string) *Holder {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return nil
	}
	var h Holder
	// A decoder reads one value: the rest of a longer, older content doesn't matter.
	if json.NewDecoder(io.LimitReader(f, 64<<10)).Decode(&h) != nil || h.PID <= 0 {
		return nil
	}
	return &h
}

// info is the holder's own descriptor for the file's content: the locked one is read-only. A nil *info does nothing.
type info struct {
	fd     int
	holder Holder
}

// openInfo opens the file that is locked for writing and notes the holder in it.
func openInfo(path string, id fileID, who Holder) (*info, error) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if !isFile(fd, id) {
		_ = unix.Close(fd)
		return nil, errors.New("another file has taken its place")
	}
	i := &info{fd: fd, holder: who}
	if err := i.write(); err != nil {
		i.clear() // better nothing than an earlier holder
		return nil, err
	}
	return i, nil
}

func (i *info) write() error {
	var buf [512]byte
	b := append(i.holder.json(buf[:0]), '\n')
	if _, err := unix.Pwrite(i.fd, b, 0); err != nil {
		return err
	}
	return unix.Ftruncate(i.fd, int64(len(b)))
}

// clear empties the file, so that nobody is taken for its holder any more, and closes the descriptor.
func (i *info) clear() {
	if i == nil {
		return
	}
	_ = unix.Ftruncate(i.fd, 0)
	_ = unix.Close(i.fd)
}
