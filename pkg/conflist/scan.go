package conflist

import (
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"
)

// scanner walks over JSON text (RFC 8259) without keeping anything of it. It
// takes what encoding/json takes, which a fuzz test holds it to; but a plugin
// that is started for every pod pays for each page that it touches, and this
// touches few.
type scanner struct {
	text []byte
	at   int
}

// deepest is how far values may nest, as in encoding/json.
const deepest = 10000

func (s *scanner) space() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return
		}
	}
}

// peek returns the next byte, 0 at the end of the text.
func (s *scanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

// accept skips white space and, if it is next, the byte.
func (s *scanner) accept(c byte) bool {
	s.space()
	if s.peek() == c && s.at < len(s.text) {
		s.at++
		return true
	}
	return false
}

func (s *scanner) bad(want string) error {
	if s.at >= len(s.text) {
		return io.ErrUnexpectedEOF
	}
	return fmt.Errorf("invalid character %q at byte %d, want %s", s.text[s.at], s.at, want)
}

// value skips white space and one value, and returns the value's span.
func (s *scanner) value(depth int) (Span, error) {
	s.space()
	start := s.at
	var err error
	switch c := s.peek(); {
	case depth > deepest:
		err = fmt.Errorf("nested deeper than %d levels at byte %d", deepest, s.at)
	case c == '"':
		err = s.str()
	case c == '{':
		err = s.list('}', func() error {
			if _, err := s.name(); err != nil {
				return err
			}
			_, err := s.value(depth + 1)
			return err
		})
	case c == '[':
		err = s.list(']', func() error { _, err := s.value(depth + 1); return err })
	case c == '-' || c >= '0' && c <= '9':
		err = s.number()
	default:
		err = s.literal()
	}
	return Span{start, s.at}, err
}

// list skips what stands between brackets, separated by commas.
func (s *scanner) list(end byte, element func() error) error {
	s.at++
	if s.accept(end) {
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if s.accept(end) {
			return nil
		}
		if !s.accept(',') {
			return s.bad("a comma or " + string(rune(end)))
		}
	}
}

// name skips a member's name and the colon, and returns the name's span.
func (s *scanner) name() (Span, error) {
	s.space()
	start := s.at
	if s.peek() != '"' {
		return Span{}, s.bad("a name")
	}
	if err := s.str(); err != nil {
		return Span{}, err
	}
	span := Span{start, s.at}
	if !s.accept(':') {
		return Span{}, s.bad("a colon")
	}
	return span, nil
}

func (s *scanner) str() error {
	for s.at++; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return nil
		case c < ' ':
			return s.bad("no control character in a string")
		case c == '\\':
			if err := s.escape(); err != nil {
				return err
			}
		}
	}
	return io.ErrUnexpectedEOF
}

// escape skips an escape but for its last byte.
func (s *scanner) escape() error {
	s.at++
	switch s.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return nil
	case 'u':
		for range 4 {
			s.at++
			if c := s.peek(); (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
				return s.bad("four hexadecimal digits")
			}
		}
		return nil
	}
	return s.bad("an escape")
}

func (s *scanner) digits() error {
	if c := s.peek(); c < '0' || c > '9' {
		return s.bad("a digit")
	}
	for c := s.peek(); c >= '0' && c <= '9'; c = s.peek() {
		s.at++
	}
	return nil
}

func (s *scanner) number() error {
	if s.peek() == '-' {
		s.at++
	}
	if s.peek() == '0' {
		s.at++
	} else if err := s.digits(); err != nil {
		return err
	}
	if s.peek() == '.' {
		s.at++
		if err := s.digits(); err != nil {
			return err
		}
	}
	if s.peek()|0x20 == 'e' {
		s.at++
		if c := s.peek(); c == '+' || c == '-' {
			s.at++
		}
		return s.digits()
	}
	return nil
}

func (s *scanner) literal() error {
	for _, word := range []string{"true", "false", "null"} {
		if s.peek() == word[0] {
			for i := range len(word) {
				if s.peek() != word[i] {
					return s.bad(word)
				}
				s.at++
			}
			return nil
		}
	}
	return s.bad("a value")
}

// String decodes a JSON string; ok is false for any other value.
func String(value []byte) (text string, ok bool) {
	if len(value) < 2 || value[0] != '"' {
		return "", false
	}
	inner := value[1 : len(value)-1]
	for _, c := range inner {
		if c == '\\' || c >= utf8.RuneSelf {
			err := json.Unmarshal(value, &text)
			return text, err == nil
		}
	}
	return string(inner), true
}
