// Package faultproxy stands between whereabouts and the API, and makes requests
// stall, fail or be answered late.
//
// It promises to do so by rules that may change at any time, to pass on
// everything else as it is, and to count what it was sent. What the rules are
// for is left to the tests.
package faultproxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"
)

// A Rule says what happens to the requests that it matches, in this order:
// Delay, then Stall or Status or else the API, then Late.
type Rule struct {
	Method string         // any if empty
	Path   *regexp.Regexp // any if nil
	Times  int            // how many requests it is for; all if 0

	Delay  time.Duration // before anything else
	Stall  bool          // never answered, never passed on
	Status int           // answered with it, never passed on
	Late   bool          // passed on, carried out, and never answered
}

// A Backend is the API that is behind a proxy.
type Backend struct {
	URL       string
	Client    *http.Client // by which requests are sent on
	Cert, Key string       // files, for the proxy's own end
}

// A Proxy is one way to the API.
type Proxy struct {
	URL string

	api    Backend
	addr   string
	server *http.Server

	mu       sync.Mutex
	listener net.Listener
	rules    []Rule
	requests int
	counts   map[string]int
	faults   int
}

// New opens a way to api. The host is any address of loopback; one of its own
// keeps its port free while it refuses connections.
func New(host string, api Backend) (*Proxy, error) {
	p := &Proxy{api: api, addr: net.JoinHostPort(host, "0"), counts: map[string]int{}}
	if err := p.Accept(); err != nil {
		return nil, err
	}
	p.addr = p.listener.Addr().String()
	p.URL = "https://" + p.addr
	return p, nil
}

// Close ends it.
func (p *Proxy) Close() { p.Refuse() }

// Refuse lets no one in any more, and throws out who is.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil {
		return
	}
	_ = p.listener.Close() // the server may not know it yet
	_ = p.server.Close()
	p.listener = nil
}

// Accept lets everybody in, at the same address as before.
func (p *Proxy) Accept() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return fmt.Errorf("the fault proxy: %w", err)
	}
	p.listener = l
	p.server = &http.Server{
		Handler: p, ReadHeaderTimeout: time.Minute,
		ErrorLog: log.New(io.Discard, "", 0), // clients that go away in the middle are what it is for
	}
	go func(s *http.Server) { _ = s.ServeTLS(l, p.api.Cert, p.api.Key) }(p.server) // always an error, at its end
	return nil
}

// Set replaces all rules; none lets everything through.
func (p *Proxy) Set(rules ...Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = rules
}

// Counts are what it was sent so far: all requests, those that a rule was for,
// and the number of each "METHOD resource".
func (p *Proxy) Counts() (requests, faults int, each map[string]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	each = map[string]int{}
	for k, v := range p.counts {
		each[k] = v
	}
	return p.requests, p.faults, each
}

// rule is the first that matches, with its count taken off.
func (p *Proxy) rule(r *http.Request) Rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests++
	p.counts[r.Method+" "+resource(r.URL.Path)]++
	for i, rule := range p.rules {
		if rule.Method != "" && rule.Method != r.Method || rule.Path != nil && !rule.Path.MatchString(r.URL.Path) {
			continue
		}
		if rule.Times < 0 {
			continue // used up
		}
		if rule.Times > 0 {
			if p.rules[i].Times--; p.rules[i].Times == 0 {
				p.rules[i].Times = -1
			}
		}
		p.faults++
		return rule
	}
	return Rule{}
}

// resource is the plural name in a path below a namespace.
func resource(path string) string {
	_, below, _ := strings.Cut(path, "/namespaces/")
	if parts := strings.Split(below, "/"); len(parts) > 1 {
		return parts[1]
	}
	return path
}

// ServeHTTP is for the server in it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rule := p.rule(r)
	body, err := io.ReadAll(r.Body) // only then is the end of the client noticed
	if err != nil {
		return
	}
	if !wait(r.Context(), rule.Delay) {
		return
	}
	switch {
	case rule.Stall:
		<-r.Context().Done()
	case rule.Status != 0:
		refuse(w, rule.Status)
	default:
		p.forward(w, r, body, rule.Late)
	}
}

func wait(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// refuse answers as the API does.
func refuse(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": %q, "message": "the test says %d", "code": %[2]d}`,
		map[int]string{http.StatusForbidden: "Forbidden", http.StatusInternalServerError: "InternalError"}[status], status)
}

// forward carries a request out whatever becomes of the client: the API is not
// asked to undo anything either.
func (p *Proxy) forward(w http.ResponseWriter, r *http.Request, body []byte, late bool) {
	req, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, p.api.URL+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	req.Header = r.Header.Clone()
	res, err := p.api.Client.Do(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if late {
		<-r.Context().Done()
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	for k, v := range res.Header {
		w.Header()[k] = v
	}
	w.Header().Del("Content-Length")
	w.WriteHeader(res.StatusCode)
	_, _ = w.Write(answer) // nobody left to tell
}
