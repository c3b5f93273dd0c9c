// Package fetched has the runtimes that the tests drive: unpacked from Debian's
// packages or built from their modules, never installed, so that nothing of
// them starts by itself. Each is made once per version and machine (see package
// cache). What to do with them is left to the tests.
package fetched

import (
	"io"

	"github.com/ipam-guard/ipam-guard/integration/internal/cache"
)

// Cache has the runtimes.
type Cache struct{ cache.Cache }

// Default is the cache that the environment names, else the user's.
func Default(log io.Writer) (Cache, error) {
	c, err := cache.Default(log)
	return Cache{c}, err
}
