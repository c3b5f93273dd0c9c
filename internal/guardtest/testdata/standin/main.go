// Command standin is a plugin that prints the node's file.
package main

import "os"

var nodeFile = "not set by the linker"

func main() {
	data, err := os.ReadFile(nodeFile)
	if err != nil {
		os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
	os.Stdout.Write(data)
}
