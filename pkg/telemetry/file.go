package telemetry

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const rightFile = `give the absolute path of a regular file, or "" for none`

// CheckFile refuses a path that no log file can have. It goes by the name alone:
// what a path leads to is judged by each Write, which never fails for it.
func CheckFile(path string) error {
	if why := unfit(path); why != "" {
		return fmt.Errorf("log file %q %s: %s", path, why, rightFile)
	}
	return nil
}

func unfit(path string) (why string) {
	switch {
	case path == "":
		return ""
	case path == "stdout":
		return "is for the result alone"
	case !filepath.IsAbs(path):
		return "is not an absolute path"
	case strings.HasSuffix(path, "/"):
		return "is a folder"
	}
	clean := filepath.Clean(path)
	for _, root := range []string{"/dev", "/proc", "/sys"} {
		if clean == root || strings.HasPrefix(clean, root+"/") {
			return "lies in " + root
		}
	}
	return ""
}

// toFile appends the line, after a rotation if it no longer fits.
//
// Rotating before the write rather than after it costs a second open once per
// file, and in return no file outgrows MaxSize but for what several processes
// write in the same moment, a missed rotation is made up for by whoever comes
// next, and the newest line is in File even with Keep 0.
func (l Log) toFile(line Line) error {
	if l.File == "" {
		return nil
	}
	if why := unfit(l.File); why != "" {
		return errors.New(why + ": " + rightFile)
	}
	text, err := encode(line)
	if err != nil {
		return err
	}
	f, err := l.open()
	if err != nil {
		return err
	}
	if !l.outgrown(f.size, len(text)) {
		return f.append(text)
	}
	// A rotation that fails is told, but the line is written all the same.
	rotated := l.rotate(len(text))
	_ = unix.Close(f.fd)
	if f, err = l.open(); err != nil {
		return err
	}
	return errors.Join(f.append(text), rotated)
}

// outgrown: a single line longer than MaxSize has a file to itself.
func (l Log) outgrown(size int64, more int) bool {
	return l.MaxSize > 0 && size > 0 && size+int64(more) > l.MaxSize
}

// logFile is the open file: a bare descriptor, since an os.File may split a
// write and would register the descriptor with the poller.
type logFile struct {
	fd   int
	size int64
}

func (l Log) open() (logFile, error) {
	fd, err := openAppend(l.File)
	if errors.Is(err, unix.ENOENT) {
		if err := os.MkdirAll(filepath.Dir(l.File), 0o755); err != nil {
			return logFile{}, err
		}
		fd, err = openAppend(l.File)
	}
	if err != nil {
		return logFile{}, fmt.Errorf("open: %w", err)
	}
	size, err := l.judge(fd)
	if err != nil {
		_ = unix.Close(fd)
		return logFile{}, err
	}
	return logFile{fd, size}, nil
}

// openAppend follows links, since administrators move logs to another disk that
// way. O_NONBLOCK is for a FIFO without a reader.
func openAppend(path string) (int, error) {
	const flags = unix.O_WRONLY | unix.O_APPEND | unix.O_CREAT | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	for {
		fd, err := unix.Open(path, flags, 0o640)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// judge looks at the thing opened, whatever name led there.
func (l Log) judge(fd int) (size int64, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, fmt.Errorf("stat: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0, errors.New("not a regular file: " + rightFile)
	}
	if l.isStdout(&st) {
		return 0, errors.New("is where stdout goes, which is for the result alone: " + rightFile)
	}
	return st.Size, nil
}

func (l Log) isStdout(st *unix.Stat_t) bool {
	if l.Stdout == nil {
		return false
	}
	info, err := l.Stdout.Stat()
	if err != nil {
		return false // closed: nothing to be mistaken for
	}
	out, ok := info.Sys().(*syscall.Stat_t)
	return ok && out.Dev == st.Dev && out.Ino == st.Ino
}

// append writes the text in one piece and closes the file.
func (f logFile) append(text []byte) error {
	n, err := unix.Write(f.fd, text)
	for err == unix.EINTR {
		n, err = unix.Write(f.fd, text)
	}
	if err == nil && n < len(text) {
		f.takeBack(n)
		err = fmt.Errorf("only %d of %d bytes fitted: is the disk full?", n, len(text))
	}
	// Some file systems say only now that there was no room.
	if err := errors.Join(err, unix.Close(f.fd)); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// takeBack removes the n bytes of a torn line, onto which the next line would be
// glued, if they still are the file's last. Should room appear and another
// process write between the look and the cut, its line goes too: a full disk
// loses lines anyway.
func (f logFile) takeBack(n int) {
	end, err := unix.Seek(f.fd, 0, unix.SEEK_CUR)
	if err != nil {
		return
	}
	var st unix.Stat_t
	if unix.Fstat(f.fd, &st) == nil && st.Size == end {
		_ = unix.Ftruncate(f.fd, end-int64(n))
	}
}
