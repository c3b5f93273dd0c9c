package store

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// HostLocalDir is where host-local keeps its networks unless it is told
// otherwise.
const HostLocalDir = "/var/lib/cni/networks"

// HostLocal reads what host-local keeps in a folder about one network: a file
// for each address, that names container and interface. Its lock, and the notes
// where it goes on in a range, are its own business. No folder: nothing was ever
// given out.
func HostLocal(dataDir, network string) ([]Held, error) {
	dir := filepath.Join(dataDir, network)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		return e.Name() == "lock" || strings.HasPrefix(e.Name(), "last_reserved_ip.")
	})
	all, errs := make([]Held, len(entries)), make([]error, len(entries))
	inParallel(len(entries), func(i int) {
		all[i], errs[i] = Reservation(filepath.Join(dir, entries[i].Name()), network)
	})
	kept := all[:0]
	for i, err := range errs {
		switch {
		case err == nil:
			kept = append(kept, all[i])
		case !errors.Is(err, fs.ErrNotExist): // else it was given back meanwhile
			return nil, err
		}
	}
	return kept, nil
}

// inParallel calls f with each number below n, on all cores: there may be many
// thousands.
func inParallel(n int, f func(i int)) {
	var next atomic.Int32
	var all sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), n) {
		all.Go(func() {
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				f(i - 1)
			}
		})
	}
	all.Wait()
}

// maxReservation is more than a container's and an interface's name can have.
const maxReservation = 4096

// Reservation reads one file of host-local's. What is no reservation has no
// address. It goes past package os, which would ask the kernel three times as
// much about each of many thousands.
func Reservation(path, network string) (Held, error) {
	h := Held{Network: network, Delegate: "host-local", Place: path}
	address, err := netip.ParseAddr(filepath.Base(path))
	if err != nil {
		return h, nil // it is found, and it is none
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) {
		return h, nil // a symbolic link
	}
	if err != nil {
		return h, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	var text [maxReservation]byte
	if err := unix.Fstat(fd, &st); err != nil {
		return h, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	h.Since = time.Unix(st.Mtim.Unix())
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > maxReservation {
		return h, nil
	}
	n, err := unix.Read(fd, text[:])
	if err != nil {
		return h, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	h.Address = address
	container, ifname, _ := strings.Cut(strings.TrimSpace(string(text[:n])), "\n")
	h.Container, h.IfName = strings.TrimSpace(container), strings.TrimSpace(ifname)
	return h, nil
}

// HostLocalNetworks are the names of the networks in a folder of host-local's.
func HostLocalNetworks(dataDir string) ([]string, error) {
	entries, err := os.ReadDir(dataDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}
