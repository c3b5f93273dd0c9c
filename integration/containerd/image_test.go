//go:build integration || results

package containerd_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

const pauseImage = "localhost/pause:1"

// image is a tar, as docker save writes it, of an image with one program.
func image(t testing.TB, dir string) string {
	t.Helper()
	program, err := os.ReadFile(guardtest.Build(t, "github.com/ipam-guard/ipam-guard/integration/internal/pause"))
	if err != nil {
		t.Fatal(err)
	}
	layer := archive(t, file{"pause", program, 0o755})
	config := fmt.Appendf(nil, `{"architecture": %q, "os": "linux", "config": {"Entrypoint": ["/pause"]},
		"rootfs": {"type": "layers", "diff_ids": ["sha256:%x"]}}`, runtime.GOARCH, sha256.Sum256(layer))
	manifest := fmt.Appendf(nil, `[{"Config": "config.json", "RepoTags": [%q], "Layers": ["layer.tar"]}]`, pauseImage)
	path := filepath.Join(dir, "pause.tar")
	all := archive(t, file{"config.json", config, 0o644}, file{"layer.tar", layer, 0o644}, file{"manifest.json", manifest, 0o644})
	if err := os.WriteFile(path, all, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

type file struct {
	name string
	data []byte
	mode int64
}

func archive(t testing.TB, files ...file) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.data))})
		if err == nil {
			_, err = w.Write(f.data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}
