# Every target runs from a clean clone with Go alone, except those that say more.
GO      ?= go
FUZZTIME ?= 10s
PKGS     = ./...

.PHONY: test race lint fuzz bench bench-rivals bench-real interop demo fixtures experiments build

test: ## all tests that need only Go
	$(GO) vet $(PKGS)
	$(GO) test -timeout 5m $(PKGS)

race: ## the same under the race detector
	CGO_ENABLED=1 $(GO) test -race -timeout 15m $(PKGS)

lint: ## gofmt, vet, staticcheck; all pinned in go.mod
	@bad=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$bad" ]; then echo "gofmt would change: $$bad"; exit 1; fi
	$(GO) vet $(PKGS)
	$(GO) tool staticcheck $(PKGS)

fuzz: ## every fuzz target for FUZZTIME
	FUZZTIME=$(FUZZTIME) GO=$(GO) sh .ci/fuzz

bench: ## benchmarks beside their baselines
	$(GO) test -run '^$$' -bench . -benchmem $(PKGS)

interop: ## real vLLM, real clients, real libzmq; needs Python 3.11, npm and a package registry
	bash interop/run

demo: ## what a newcomer sees
	$(GO) run ./cmd/kvasir demo

build: ## one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/kvasir ./cmd/kvasir
