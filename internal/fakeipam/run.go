package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/internal/fakeipam/record"
)

// run is one call of the delegate.
type run struct {
	verb  string
	owner owner
	conf  netconf
	dir   string
	stdin string

	n       int
	taken   []string // addresses for the result
	printed bool     // something is on stdout: no result at the end
}

func newRun(base string, stdin []byte) (*run, error) {
	conf := decode(base, stdin)
	r := &run{
		verb:  os.Getenv("CNI_COMMAND"),
		owner: owner{os.Getenv("CNI_CONTAINERID"), os.Getenv("CNI_IFNAME"), conf.Name},
		conf:  conf,
		dir:   conf.own.Dir,
		stdin: string(stdin),
	}
	if r.dir == "" {
		r.dir = os.Getenv("FAKEIPAM_DIR")
	}
	if r.dir == "" {
		return nil, errors.New("no dir in it and no FAKEIPAM_DIR")
	}
	return r, os.MkdirAll(r.dir, 0o777)
}

// enter takes the lock that tells whether another run is under way. It is held
// until this very process is gone: the descriptor is closed on exec, so no
// child holds it. CHECK, STATUS and VERSION may run beside anything.
func (r *run) enter() (overlap bool, err error) {
	if !slices.Contains([]string{"ADD", "DEL", "GC"}, r.verb) {
		return false, nil
	}
	fd, err := unix.Open(filepath.Join(r.dir, "running"), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o666)
	if err != nil {
		return false, err
	}
	err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// begin records the call and returns its script.
func (r *run) begin(fds []record.FD, overlap bool) (script string, err error) {
	var nth int
	if r.n, err = count(filepath.Join(r.dir, "count")); err != nil {
		return "", err
	}
	if nth, err = count(filepath.Join(r.dir, "nth."+r.verb)); err != nil {
		return "", err
	}
	err = record.Begin(r.dir, record.Call{
		N: r.n, Nth: nth, Verb: r.verb, Container: r.owner.container, IfName: r.owner.ifname,
		Netns: os.Getenv("CNI_NETNS"), Args: os.Getenv("CNI_ARGS"), Path: os.Getenv("CNI_PATH"),
		Above: os.Getenv("IPAM_GUARD_ABOVE"), Env: os.Environ(), Stdin: r.stdin,
		PID: os.Getpid(), PPID: os.Getppid(), PGID: unix.Getpgrp(),
		Start: record.Now(), FDs: fds, Overlap: overlap,
	})
	if err != nil {
		return "", err
	}
	s, err := override(r.dir, r.conf.own.Script)
	if err != nil {
		return "", err
	}
	return s.pick(r.verb, nth)
}

// count appends a byte and returns the length after that very byte: O_APPEND
// moves the offset to the end of what was written, so no two calls get the
// same number and a kill leaves nothing half done.
func count(path string) (int, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if _, err := f.Write([]byte{'.'}); err != nil {
		return 0, err
	}
	n, err := f.Seek(0, io.SeekCurrent)
	return int(n), err
}

// script runs the statements and returns the exit code; fault says what is
// wrong with the script itself.
func (r *run) script(text string) (code int, fault string) {
	steps, err := parse(text)
	if err != nil {
		return 0, err.Error()
	}
	for _, s := range steps {
		if err := s.do(r, s.args); err != nil {
			return r.end(err)
		}
	}
	if r.verb == "ADD" && !r.printed {
		if err := r.printResult(nil); err != nil {
			return r.end(err)
		}
	}
	return 0, ""
}

// end answers as the statement that stopped the script asks for.
func (r *run) end(err error) (code int, fault string) {
	var e exit
	if !errors.As(err, &e) {
		return 0, err.Error()
	}
	if e.answer != nil {
		_ = e.answer.Print()
	}
	return e.code, ""
}

// exit ends a script.
type exit struct {
	code   int
	answer *types.Error // nil: nothing is printed
}

func (e exit) Error() string { return "exit " + strconv.Itoa(e.code) }
