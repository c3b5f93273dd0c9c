//go:build kubernetes

package kubernetes_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/integration/kubernetes/internal/cluster"
	"github.com/ipam-guard/ipam-guard/integration/kubernetes/internal/parts"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// stage is what all tests of this package share: read-only once they run.
var stage struct {
	cluster     *cluster.Cluster
	whereabouts string
	report      *report
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	// whereabouts burns a processor while it starts, and then mostly waits.
	_ = flag.Set("test.parallel", "6")
	began := time.Now()
	p, err := getParts()
	if err != nil {
		if testing.Short() {
			fmt.Printf("LEFT OUT: no test with a real Kubernetes API was run, its programs can't be had: %v\n", err)
			return 0
		}
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Printf("etcd, kube-apiserver and whereabouts: built now %v, all else from the cache (%v)\n", p.Built, time.Since(began).Round(time.Second))
	c, err := cluster.Start(context.Background(), p)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer c.Stop()
	stage.cluster, stage.whereabouts, stage.report = c, p.Whereabouts, newReport(c.Versions)
	code := guardtest.M{M: m}.Run()
	if file := os.Getenv("IPAM_GUARD_TESTS_RESULTS"); file != "" && code == 0 {
		if err := stage.report.write(file, time.Since(began)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

func getParts() (*parts.Parts, error) {
	limit := 2 * time.Hour
	if s := os.Getenv("IPAM_GUARD_TESTS_BUILD_TIME"); s != "" {
		var err error
		if limit, err = time.ParseDuration(s); err != nil {
			return nil, fmt.Errorf("IPAM_GUARD_TESTS_BUILD_TIME: %w", err)
		}
	}
	cache, err := parts.Default(os.Stdout)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return cache.Get(ctx)
}
