package journal

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/ipam-guard/ipam-guard/pkg/conflist"
)

// Version is the one that is written. Records of all earlier versions are read.
const Version = 1

// State says how far an attachment has come.
type State string

// The states of a record whose writer may be alive or gone, see docs/guarantees.md.
const (
	Adding    State = "adding"    // an ADD that isn't committed
	Attached  State = "attached"  // a live attachment
	Releasing State = "releasing" // must be released
)

// Owed says since when nobody uses the address any more.
type Owed string

// What a record in state Releasing waits for.
const (
	Now   Owed = "now"   // nobody uses the address
	Netns Owed = "netns" // until its netns is gone, an interface may still answer for it
)

// Key names an attachment.
type Key struct {
	Network   string
	Container string
	IfName    string
	Delegate  string // its type
}

func (k Key) String() string {
	return fmt.Sprintf("container %s (%s, network %s, %s)", k.Container, k.IfName, k.Network, k.Delegate)
}

// Place is a network namespace as it was at ADD.
type Place struct {
	Path  string // CNI_NETNS
	Dev   uint64 // of the file that Path led to; 0: not known
	Inode uint64 // of that file
	MntNS uint64 // inode of the mount namespace in which Path was looked up
	Boot  string // boot id
}

// Record is what is known about one attachment.
type Record struct {
	Version int
	Created string // by the wall clock, for people
	Key
	Facts
	Result []byte // what the ADD printed
	Status
}

// Facts are what a release needs to know. They change only when an ADD is
// repeated.
type Facts struct {
	Netconf []byte // the plugin configuration as the delegate got it
	Guard   []byte // the netconf's own guard object
	Args    string // CNI_ARGS
	Path    string // CNI_PATH
	Binary  string // the delegate's file
	Netns   Place
}

// Status is what changes. Times are milliseconds since boot (CLOCK_BOOTTIME):
// they mean something only while Boot is the present one.
type Status struct {
	State     State
	Owed      Owed
	Started   bool     // the delegate's ADD was started
	Gone      bool     // the runtime said that the netns is gone
	Tries     int      // failed releases
	LastError string   // of the last one
	Boot      string   // boot id of the times
	Due       int64    // when to release it next
	GoneSince int64    // since when its netns was seen to be gone; 0: it wasn't
	Mark      string   // its name in the queue
	Confirmed []string // the delegate's ranges that are released already
}

// ErrNewer says that a newer guard wrote the record. What it means is not ours to guess.
var ErrNewer = errors.New("written by a newer version")

// parse reads the lines of a record: the first is whole, each further one says
// what changed. A last line without its end was never finished by its writer:
// whole is the length without it. Any bytes give a record or an error.
func parse(text []byte) (r Record, whole int, err error) {
	whole = bytes.LastIndexByte(text, '\n') + 1
	lines := bytes.Split(text[:whole], []byte{'\n'})
	lines = lines[:len(lines)-1]
	if len(lines) == 0 {
		return r, whole, errors.New("no complete line")
	}
	for i, line := range lines {
		o, err := conflist.Parse(line)
		if err == nil && i == 0 && newer(o) {
			return r, whole, ErrNewer
		}
		if err == nil {
			err = r.read(o)
		}
		if err != nil {
			return r, whole, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	if err := r.check(); err != nil {
		return r, whole, err
	}
	if whole < len(text) && r.State == Adding {
		// What was cut off may have committed it. Its netns tells.
		r.State, r.Owed = Releasing, Netns
	}
	return r, whole, nil
}

func newer(first conflist.Object) bool {
	v, err := strconv.Atoi(string(first.Value("version")))
	return err == nil && v > Version
}

func (r *Record) check() error {
	switch {
	case r.Version < 1:
		return errors.New("no version")
	case r.State != Adding && r.State != Attached && r.State != Releasing:
		return fmt.Errorf("unknown state %q", r.State)
	case r.Container == "" || r.IfName == "" || r.Delegate == "":
		return errors.New("no key")
	}
	return nil
}
