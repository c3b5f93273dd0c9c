//go:build crash || integration

package crash_test

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

func TestMain(m *testing.M) {
	if order := os.Getenv(traceEnv); order != "" {
		os.Exit(trace(order))
	}
	// Most of the time a cell waits for processes: more than one per CPU.
	_ = flag.Set("test.parallel", strconv.Itoa(2*runtime.NumCPU()))
	guardtest.Main(m)
}
