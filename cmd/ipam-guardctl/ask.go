package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/mattn/go-isatty"
)

func terminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// asks says whether somebody is there to be asked.
func (s streams) asks() bool { return terminal(s.in) && terminal(s.err) }

// ask asks for a line; an interrupt is an empty one. stdout stays the answer's.
func (t *tool) ask(question string) string {
	fmt.Fprint(t.err, question+" ")
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(oneByte{t.in}).ReadString('\n') // its end is an answer, too
		line <- strings.TrimSpace(text)
	}()
	select {
	case text := <-line:
		return text
	case <-t.done:
		return ""
	}
}

// oneByte lets a buffered reader take no more than the line.
type oneByte struct{ io.Reader }

func (r oneByte) Read(p []byte) (int, error) { return r.Reader.Read(p[:min(len(p), 1)]) }

// sure asks whether to go on. Where nobody can be asked, --yes has to say so.
func (t *tool) sure(yes bool, question string) error {
	switch {
	case yes:
		return nil
	case !t.asks():
		return usagef("%s There is no terminal to ask: say --yes", question)
	}
	switch strings.ToLower(t.ask(question + " [y/N]")) {
	case "y", "yes":
		return nil
	}
	return &exitError{exitFailed, fmt.Errorf("nothing was done")}
}

// who is the person at work, for the log.
func (s streams) who() string {
	name := "uid " + strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	for _, kv := range s.env {
		if sudo, ok := strings.CutPrefix(kv, "SUDO_USER="); ok && sudo != "" && sudo != name {
			return name + " (sudo by " + printable(sudo) + ")"
		}
	}
	return name
}

// progress tells a person on a terminal how far a long work has come.
type progress struct {
	w   io.Writer
	all int
	on  bool
}

func (t *tool) progress(all int) progress { return progress{t.err, all, all > 1 && terminal(t.err)} }

func (p progress) at(n, failed int) {
	if p.on {
		fmt.Fprintf(p.w, "\r\x1b[K%d of %d, %d failed", n, p.all, failed)
	}
}

func (p progress) end() {
	if p.on {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
