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
		{"hang"},
		{"refuse", "refuse", "refuse"}, // more than the guard tries in one DEL
		{"die"},
		{"late"},
		{"gone"},
		{},
		{},
		{},
	}[i%10]
}

// setMoods makes the delegate moody for the next storm of DELs of some pods.
func (n *node) setMoods(pods []pod) error {
	for i, p := range pods {
		text := strings.Join(append(moodsOf(i), ""), "\n")
		if err := os.WriteFile(filepath.Join(n.moods(), p.name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// setDown takes the address server away: every DEL is refused until it is back.
func (n *node) setDown(down bool) error {
	file := filepath.Join(n.moods(), "down")
	if down {
		return os.WriteFile(file, nil, 0o644)
	}
	return os.Remove(file)
}
