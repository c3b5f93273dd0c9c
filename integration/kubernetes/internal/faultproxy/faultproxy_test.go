package faultproxy_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/integration/kubernetes/internal/faultproxy"
)

// between is a proxy before an API that counts what it carried out.
func between(t *testing.T) (*faultproxy.Proxy, *atomic.Int32, func(ctx context.Context, method, path string) (int, string, error)) {
	t.Helper()
	var done atomic.Int32
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		done.Add(1)
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, r.Method+" "+r.URL.RequestURI()+" "+string(body))
	}))
	t.Cleanup(api.Close)
	cert, key := filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
	writePEM(t, cert, "CERTIFICATE", api.TLS.Certificates[0].Certificate[0])
	private, err := x509.MarshalPKCS8PrivateKey(api.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, key, "PRIVATE KEY", private)
	p, err := faultproxy.New("127.0.0.1", faultproxy.Backend{URL: api.URL, Client: api.Client(), Cert: cert, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, &done, func(ctx context.Context, method, path string) (int, string, error) {
		req, err := http.NewRequestWithContext(ctx, method, p.URL+path, strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		res, err := api.Client().Do(req)
		if err != nil {
			return 0, "", err
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		return res.StatusCode, string(text), err
	}
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

const pool = "/apis/x/namespaces/n/ippools/a?b=c"

func TestPassesOnWhatNoRuleIsFor(t *testing.T) {
	p, _, do := between(t)
	p.Set(faultproxy.Rule{Method: "GET", Status: 500}, faultproxy.Rule{Path: regexp.MustCompile("/leases"), Status: 403})
	status, text, err := do(t.Context(), "PATCH", pool)
	if status != http.StatusAccepted || text != "PATCH "+pool+" body" || err != nil {
		t.Errorf("have %d %q %v", status, text, err)
	}
	if n, faults, each := p.Counts(); n != 1 || faults != 0 || each["PATCH ippools"] != 1 {
		t.Errorf("counted %d, %d, %v", n, faults, each)
	}
}

func TestStatusAsOftenAsItSays(t *testing.T) {
	p, done, do := between(t)
	p.Set(faultproxy.Rule{Method: "PATCH", Status: 403, Times: 2})
	for i, want := range []int{403, 403, http.StatusAccepted} {
		if status, text, err := do(t.Context(), "PATCH", pool); status != want || err != nil {
			t.Errorf("request %d: %d %q %v", i, status, text, err)
		}
	}
	if _, faults, _ := p.Counts(); faults != 2 || done.Load() != 1 {
		t.Errorf("%d faults, %d carried out", faults, done.Load())
	}
}

// A request that stalls isn't carried out, one that is answered late is.
func TestStallAndLate(t *testing.T) {
	p, done, do := between(t)
	for _, tt := range []struct {
		rule faultproxy.Rule
		want int32
	}{
		{faultproxy.Rule{Stall: true}, 0},
		{faultproxy.Rule{Delay: time.Hour}, 0},
		{faultproxy.Rule{Late: true}, 1},
	} {
		done.Store(0)
		p.Set(tt.rule)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, _, err := do(ctx, "PATCH", pool)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%+v: answered: %v", tt.rule, err)
		}
		for end := time.Now().Add(5 * time.Second); done.Load() < tt.want && time.Now().Before(end); time.Sleep(time.Millisecond) {
		}
		if have := done.Load(); have != tt.want {
			t.Errorf("%+v: carried out %d times", tt.rule, have)
		}
	}
}

func TestRefuseAndAccept(t *testing.T) {
	p, _, do := between(t)
	if status, _, err := do(t.Context(), "GET", pool); status != http.StatusAccepted {
		t.Fatal(status, err)
	}
	p.Refuse()
	if _, _, err := do(t.Context(), "GET", pool); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("have %v", err)
	}
	if err := p.Accept(); err != nil {
		t.Fatal(err)
	}
	if status, _, err := do(t.Context(), "GET", pool); status != http.StatusAccepted {
		t.Errorf("at the same address again: %d %v", status, err)
	}
}
