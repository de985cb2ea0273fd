# Every target runs from a clean clone with Go alone, except those that say more.
GO      ?= go
FUZZTIME ?= 300s
FUZZPKGS ?=
PKGS     = ./...
PKG     ?= ./sched ./policy ./ledger ./fleet ./kv ./engine/seq
N       ?= 60
SEED    ?= 1

.PHONY: test race lint fuzz mutants bench bench-rivals bench-real interop demo docs fixtures experiments build

test: ## all tests that need only Go
	$(GO) vet $(PKGS)
	$(GO) test -timeout 10m $(PKGS)

race: ## the same under the race detector, without the long tests of single-threaded code; with invariants checked where they live
	CGO_ENABLED=1 $(GO) test -race -short -timeout 20m $(PKGS)
	CGO_ENABLED=1 $(GO) test -race -short -tags invariants -timeout 20m ./ledger ./sched ./index/... ./proxy ./router

lint: ## gofmt, vet, staticcheck; all pinned in go.mod
	@bad=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$bad" ]; then echo "gofmt would change: $$bad"; exit 1; fi
	$(GO) vet $(PKGS)
	$(GO) tool staticcheck $(PKGS)

fuzz: ## search for new inputs, by hand: each target (of FUZZPKGS) for FUZZTIME on 2 cores, so ten CPU minutes; over an hour in all
	FUZZTIME=$(FUZZTIME) GO=$(GO) sh .ci/fuzz $(FUZZPKGS)

mutants: ## would the tests notice? N mutants of each package of PKG, run against its own tests; survivors are listed
	$(GO) run ./lab/mutants -n $(N) -seed $(SEED) $(PKG)

bench: ## benchmarks beside their baselines
	$(GO) test -run '^$$' -bench . -benchmem $(PKGS)

interop: ## real vLLM, real clients, real libzmq; needs Python 3.11, npm and a package registry
	bash interop/run

bench-rivals: ## Dynamo's index on the same workload (Rust, from crates.io), and ours; needs cargo and ../shared/bench
	sh .ci/rivals ../shared/bench/src/rust/dynbench

docs: ## docs/configuration.md and docs/kvasir.schema.json, from the source
	$(GO) generate ./config

fixtures: ## tokenizer files and chat templates that tests read and that can't be vendored; cached by sum
	$(GO) run ./token/bpe/fetch
	$(GO) run ./token/chat/fetch

experiments: ## docs/experiments.md and .html from the current code; needs the workloads of ../shared
	$(GO) run ./lab/experiments -cells ../shared/cells -traces ../shared/traces -out docs

bench-real: ## side by side with other routers on two real vLLM engines; needs ../shared/bench, Python and an idle machine
	bash interop/real/run ../shared/bench/src/real

demo: ## what a newcomer sees
	$(GO) run ./cmd/kvasir demo

build: ## one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/kvasir ./cmd/kvasir
