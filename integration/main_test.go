//go:build integration

package integration_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "the integration tests make network namespaces: run them as root")
		os.Exit(1)
	}
	guardtest.Main(m)
}
