package main

import (
	"os"
	"path/filepath"
	"strings"
)

// moodsOf says how the delegate answers the DELs of the i-th pod, one word for
// each call; when they are used up, all goes well. moody.sh knows the words.
func moodsOf(i int) []string {
	return [][]string{
		{},
		{"refuse"},
		{},
		{"hang"},
		{"die"},
		{},
		{"refuse", "refuse", "refuse"}, // more than the guard tries in one DEL
		{"late"},
		{"gone"},
		{},
	}[i%10]
}

// setMoods makes the delegate moody for the next storm of DELs.
func (n *node) setMoods() error {
	for i, p := range n.pods {
		text := strings.Join(append(moodsOf(i), ""), "\n")
		if err := os.WriteFile(filepath.Join(n.moods(), p.name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
