package conflist

import (
	"encoding/json"
	"unicode/utf8"
)

// AppendString appends text as a JSON string. What is not UTF-8 becomes U+FFFD,
// as with encoding/json.
func AppendString(to []byte, text string) []byte {
	if !utf8.ValidString(text) {
		quoted, _ := json.Marshal(text)
		return append(to, quoted...)
	}
	const hex = "0123456789abcdef"
	to = append(to, '"')
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			to = append(to, '\\', c)
		case c == '\n':
			to = append(to, '\\', 'n')
		case c < ' ':
			to = append(to, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			to = append(to, c)
		}
	}
	return append(to, '"')
}
