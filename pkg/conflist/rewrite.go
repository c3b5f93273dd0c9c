package conflist

import "bytes"

// Rewrite returns what stands between the braces of an object with some members
// changed: change returns the text that takes a member's place, nil to leave it
// as it is, and false to take it away together with one comma. All other bytes
// stay.
func (o Object) Rewrite(change func(Member) (text []byte, keep bool)) []byte {
	var out []byte
	start, first := o.Span.Start+1, true
	for _, m := range o.Members {
		before := o.Doc[start:m.Key.Start]
		start = m.Value.End
		text, keep := change(m)
		if !keep {
			continue
		}
		if first { // what stood before it is gone, the comma with it
			before = bytes.Replace(before, []byte{','}, nil, 1)
		}
		if text == nil {
			text = o.Doc[m.Key.Start:m.Value.End]
		}
		out, first = append(append(out, before...), text...), false
	}
	return append(out, o.Doc[start:o.Span.End-1]...)
}
