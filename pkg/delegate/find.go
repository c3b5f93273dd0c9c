package delegate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// MissingError says that there is no delegate to run: a bad name, none in
// CNI_PATH, or a file that the kernel won't execute.
//
// Its text never contains "not found" or "no such file or directory":
// containerd takes a failed DEL that says so for a done one.
type MissingError struct {
	Name string // the delegate's type
	Path string // the CNI_PATH that was searched, or the file that can't be executed
	Err  error  // why
}

// Reasons of Find, each with what to do.
var (
	errBadName  = errors.New("not a plugin name: set the delegate's type to the bare name of a file in CNI_PATH")
	errNoPath   = errors.New("CNI_PATH is empty: set it to the folders that hold the plugins")
	errNowhere  = errors.New("none of these folders has it: install the plugin there or add its folder to CNI_PATH")
	errOnlySelf = errors.New("what has this name there is ipam-guard itself: install the plugin in a later folder of CNI_PATH")
)

func (e *MissingError) Error() string {
	text := e.Err.Error()
	switch {
	case errors.Is(e.Err, syscall.ENOENT):
		text = "the file, its interpreter or its loader is gone: install it again"
	case errors.Is(e.Err, syscall.EACCES):
		text += ": give it mode 0755, on a file system mounted without noexec"
	case errors.Is(e.Err, syscall.ENOEXEC):
		text += ": install the plugin built for this machine"
	}
	return fmt.Sprintf("no delegate %q (%s): %s", e.Name, e.Path, text)
}

func (e *MissingError) Unwrap() error { return e.Err }

// Find gives the first regular file with that name in the folders of cniPath,
// as libcni does it: symlinks followed, the mode not looked at. Every error is a
// *MissingError.
func Find(name, cniPath string) (string, error) {
	return search(name, cniPath, filepath.SplitList(cniPath), nil)
}

// search gives the first regular file with that name in the folders that is not
// to be passed over.
func search(name, cniPath string, folders []string, pass func(string, os.FileInfo) bool) (string, error) {
	missing := func(why error) (string, error) {
		return "", &MissingError{Name: name, Path: cniPath, Err: why}
	}
	if name == "" || name == "." || name == ".." || strings.ContainsRune(name, os.PathSeparator) {
		return missing(errBadName)
	}
	if cniPath == "" {
		return missing(errNoPath)
	}
	why := errNowhere
	for _, folder := range folders {
		path := filepath.Join(folder, name)
		info, err := os.Stat(path)
		switch {
		case err != nil || !info.Mode().IsRegular():
		case pass != nil && pass(path, info):
			why = errOnlySelf
		default:
			return path, nil
		}
	}
	return missing(why)
}
