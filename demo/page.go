package main

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"golang.org/x/sys/unix"
)

// page is what people read: plain text, with colour on a terminal.
type page struct {
	out    *os.File
	colour bool
}

func newPage(out *os.File) *page {
	_, err := unix.IoctlGetTermios(int(out.Fd()), unix.TCGETS)
	return &page{out: out, colour: err == nil && os.Getenv("NO_COLOR") == ""}
}

const (
	bold  = "1"
	red   = "31"
	green = "32"
)

func (p *page) paint(style, text string) string {
	if !p.colour {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

func (p *page) title(format string, args ...any) {
	fmt.Fprintln(p.out, "\n"+p.paint(bold, fmt.Sprintf(format, args...)))
}

func (p *page) say(format string, args ...any) {
	fmt.Fprintf(p.out, format+"\n", args...)
}

// table prints rows in columns; the first row is the heading.
func (p *page) table(rows [][]string) {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, "  "+strings.Join(row, "\t"))
	}
	_ = w.Flush() // into memory
	head, rest, _ := strings.Cut(text.String(), "\n")
	fmt.Fprintf(p.out, "\n%s\n%s", p.paint(bold, head), rest)
}

// verdict is the last line.
func (p *page) verdict(leaked int) {
	style := green
	if leaked > 0 {
		style = red
	}
	fmt.Fprintln(p.out, "\n"+p.paint(style, fmt.Sprintf("leaked addresses: %d", leaked)))
}
