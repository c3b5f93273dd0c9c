# Needs Go, git, make and gcc. `make help` lists the targets.

# What a shell happens to hold does not change what is built or tested; `make GOFLAGS=... TARGET` still does.
export GOFLAGS := -mod=readonly -buildvcs=false
export GOWORK := off

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w
# Go's newer garbage collector keeps marks in every span. A plugin is over before there is garbage, and would pay with a
# tenth of its page faults. Where Go no longer knows the older one, it is built without asking for it.
OLDGC   := $(shell GOEXPERIMENT=nogreenteagc go version >/dev/null 2>&1 && echo GOEXPERIMENT=nogreenteagc)
STATIC   = $(OLDGC) CGO_ENABLED=0 go build -trimpath -ldflags "$(LDFLAGS)"
PLUGINS := github.com/containernetworking/plugins/plugins
# Everything that needs no root.
UNIT     = $$(go list ./... | grep -v '/integration\(/\|$$\)')

FUZZTIME  ?= 30s
PAIRS     ?= 200
BUILDTIME ?= 30m
BENCHARGS ?=

.DEFAULT_GOAL := build

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-28s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: plugin ## the plugin and the administrator's tool, static: bin/ipam-guard, bin/ipam-guardctl
	CGO_ENABLED=0 go build -trimpath -ldflags "$(LDFLAGS) -X main.version=$(VERSION)" -o bin/ipam-guardctl ./cmd/ipam-guardctl

.PHONY: plugin
plugin: LDFLAGS += -X main.version=$(VERSION)
plugin: ## the plugin alone: bin/ipam-guard
	$(STATIC) -o bin/ipam-guard ./cmd/ipam-guard

.PHONY: plugins
plugins: ## the real bridge and host-local from the module: bin/cni/
	@mkdir -p bin/cni
	CGO_ENABLED=0 go build -trimpath -ldflags "$(LDFLAGS)" -o bin/cni/ $(PLUGINS)/main/bridge $(PLUGINS)/ipam/host-local

.PHONY: demo
demo: plugin plugins ## twenty pods at once through the guard, with a delegate that hangs and fails; more of it as root
	go run ./demo

.PHONY: test
test: ## all tests that need no root, with the race detector, in random order
	CGO_ENABLED=1 go test -race -shuffle=on $(UNIT)

.PHONY: integration
integration: plugin plugins integration-runtimes ## tests with bridge and network namespaces, real runtimes, a short make crash; needs root
	CGO_ENABLED=1 go test -race -shuffle=on -tags=integration ./integration ./integration/crash
	go test -shuffle=on -tags=integration ./integration/model

.PHONY: integration-kubernetes
integration-kubernetes: ## whereabouts bare and guarded on a real Kubernetes API; writes docs/results-whereabouts.md
	go test -race -shuffle=on ./integration/kubernetes/internal/...
	cd integration/kubernetes && IPAM_GUARD_TESTS_RESULTS=$(CURDIR)/docs/results-whereabouts.md go test -tags=kubernetes -count=1 -timeout 180m

.PHONY: integration-kubernetes-short
integration-kubernetes-short: ## three faults and a storm of 10; says so if its programs can't be had within BUILDTIME (30m)
	cd integration/kubernetes && IPAM_GUARD_TESTS_BUILD_TIME=$(BUILDTIME) go test -short -tags=kubernetes -count=1 -timeout 60m

.PHONY: fixtures
fixtures: ## gets containerd and podman into a cache, once: from Debian and the Go proxy, installing nothing
	go run ./integration/internal/fetch

.PHONY: integration-runtimes
integration-runtimes: fixtures ## of these: pods of a real containerd and podman, and calls in CRI-O's order
	CGO_ENABLED=1 go test -race -shuffle=on -p 1 -parallel 4 -tags=integration ./integration/containerd ./integration/podman ./integration/crio ./integration/internal/...

.PHONY: integration-audit
integration-audit: fixtures ## audit --release and gc beside pods of containerd and podman, and on whereabouts' pools; 6 min, needs root
	go test -tags=results -run TestReleaseRaced -count=1 -timeout 20m ./integration/containerd
	go test -tags=kubernetes -count=1 -timeout 60m ./integration/kubernetes/audit

.PHONY: results
results: fixtures ## misbehaviour on real runtimes, bare and guarded; writes docs/results-runtimes.md; needs root
	go test -tags=results -run 'TestResults|TestCost' -p 1 -parallel 3 -count=1 -timeout 60m ./integration/crio ./integration/podman ./integration/containerd

.PHONY: crash
crash: ## SIGKILL of the plugin at every system call of its files, locks and processes; 500 random sequences against a model
	go test -tags=crash ./integration/crash/... -timeout 60m -v
	MODEL_RUNS=500 go test -tags=crash -timeout 60m ./integration/model

.PHONY: lint
lint: bin/golangci-lint ## gofmt, go vet, and the linters of .golangci.yml
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "gofmt these:"; echo "$$unformatted"; exit 1; fi
	go vet -tags=integration,kubernetes,results ./...
	bin/golangci-lint run ./...

# Its module is its own, so that what the linters need never meets what the plugin needs. The first build takes minutes.
bin/golangci-lint: tools/lint/go.mod tools/lint/go.sum
	cd tools/lint && CGO_ENABLED=0 go build -o ../../bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

.PHONY: fuzz
fuzz: ## every fuzz test, one after the other, FUZZTIME (30s) each
	@set -e; \
	for dir in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -r -n1 dirname | sort -u); do \
		names=$$(go test -list '^Fuzz' $$dir); \
		for name in $$(echo "$$names" | grep '^Fuzz'); do \
			echo "== $$dir $$name, $(FUZZTIME)"; \
			go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) $$dir; \
		done; \
	done

.PHONY: bench
bench: plugin plugins ## what ADD and DEL cost: bare, C wrapper, Go floor, guard (PAIRS=200, BENCHARGS="-gate -markdown")
	@mkdir -p bin/bench
	$(STATIC) -o bin/bench/floor ./bench/floor
	$(CC) -O2 -static -s -o bin/bench/wrapper bench/wrapper/wrapper.c
	go run ./bench -version $(VERSION) -pairs $(PAIRS) $(BENCHARGS)

.PHONY: bench-gate
bench-gate: ## bench, failing where the guard costs more than it may
	@$(MAKE) --no-print-directory bench BENCHARGS="-gate $(BENCHARGS)"

.PHONY: ci
ci: ## all that CI runs: build, lint, test, integration and its Kubernetes part (as root), a short fuzz, bench-gate
	.ci/run

.PHONY: clean
clean: ## remove bin/
	rm -rf bin
