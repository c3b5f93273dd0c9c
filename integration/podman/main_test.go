//go:build integration || results

package podman_test

import (
	"testing"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

func TestMain(m *testing.M) { guardtest.Main(m) }
