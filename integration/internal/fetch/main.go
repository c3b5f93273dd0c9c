// Command fetch gets all that the tests on real runtimes need, and says what
// takes long. The tests get it themselves where it is absent; `go test` would
// keep quiet about it meanwhile.
package main

import (
	"fmt"
	"os"

	"github.com/ipam-guard/ipam-guard/integration/internal/fetched"
)

func main() {
	if err := all(); err != nil {
		fmt.Fprintln(os.Stderr, "fetch:", err)
		os.Exit(1)
	}
}

func all() error {
	c, err := fetched.Default(os.Stderr)
	if err != nil {
		return err
	}
	for _, get := range []func() (string, error){c.Containerd1, c.Podman, c.Containerd2} {
		dir, err := get()
		if err != nil {
			return err
		}
		fmt.Println(dir)
	}
	return nil
}
