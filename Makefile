# admitd: the targets that people and CI use. `make help` lists them.

SHELL := /bin/bash
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
ENGINE  ?= sim
MODEL   ?= Qwen2.5-0.5B
VLLM    ?= .cache/vllm
LINT_VERSION := v2.15.0
FUZZTIME ?= 5s
GO_PKGS := ./...
# The NVML header marks calls as deprecated that its Go bindings wrap; they are not ours to change.
export CGO_CFLAGS := -O2 -g -Wno-deprecated-declarations
WEB := ui/web

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

serve: build ## run the main job; ENGINE=sim (default), vllm, sglang; MODEL=name
ifeq ($(ENGINE),vllm)
	@scripts/serve-vllm.sh $(VLLM) $(MODEL)
else
	@if [ "$(ENGINE)" = sim ]; then scripts/say-simulated.sh; fi
	./bin/admitd serve --engine $(ENGINE) --model $(MODEL)
endif

build: ui ## build bin/admitd with the dashboard in it
	@scripts/deps.sh build
	go build -trimpath -ldflags "-X main.version=$(VERSION) -extldflags=-Wl,-z,lazy" -o bin/admitd ./cmd/admitd

ui: ui/dist/index.html ## build the dashboard into ui/dist

ui/dist/index.html: $(WEB)/node_modules/.done $(shell find $(WEB)/src $(WEB)/scripts -type f 2>/dev/null)
	cd $(WEB) && npm run --silent build

$(WEB)/node_modules/.done: $(WEB)/package-lock.json
	cd $(WEB) && npm ci --silent --no-audit --no-fund
	@touch $@

test: deps-test build ## all tests but those on a real engine: Go with the race detector, dashboard units, browser
	go test -race $(GO_PKGS)
	cd $(WEB) && npm test --silent
	cd $(WEB) && npm run --silent e2e
	cd test/sdk && npm ci --silent --no-audit --no-fund && npm test --silent
	$(MAKE) --no-print-directory fuzz

deps-test:
	@scripts/deps.sh test

fuzz: ## each fuzz target for FUZZTIME (5s; CI takes 60s)
	@scripts/fuzz.sh $(FUZZTIME)

chaos: ## five minutes of chaos around the real program, then the books
	ADMITD_CHAOS=5m go test -count=1 -timeout 20m -v ./test/chaos

books: ## a million requests of every kind of ending through the gate, with the race detector (about 10 minutes)
	ADMITD_BOOKS=1000000 go test -race -count=1 -timeout 60m -v ./test/books

test-vllm: build ## the tests against a real vLLM (CPU build where there is no GPU)
	@scripts/deps.sh vllm
	@scripts/vllm-cpu.sh $(VLLM)
	ADMITD_VLLM=$(abspath $(VLLM)) go test -count=1 -tags vllm -timeout 25m -v ./test/vllm

bench-speed: build ## what admitd costs beside other relays on this machine, into docs/benchmarks.md (10 minutes)
	@scripts/benchmark-speed.sh

check: lint generate-check docs-check words-check web-check ## format, lint, vet, generated files, docs links, words

lint: .tools/golangci-lint-$(LINT_VERSION) ui
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "gofmt:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	go vet $(GO_PKGS)
	$< run
	@scripts/size-check.sh

.tools/golangci-lint-$(LINT_VERSION):
	GOBIN=$(abspath .tools) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	@mv .tools/golangci-lint $@

web-check: $(WEB)/node_modules/.done
	cd $(WEB) && npm run --silent check

generate: ## write the generated files: docs/configuration.md, docs/reasons.md, configs/admitd.schema.json
	go run ./internal/gen

generate-check:
	go run ./internal/gen -check

docs-check:
	@scripts/docs-check.sh

words-check:
	@scripts/words-check.sh

fmt: ## format the Go code
	gofmt -w $$(git ls-files '*.go')

clean: ## remove what was built
	rm -rf bin ui/dist/* .tools

.PHONY: help serve build ui bench-speed test deps-test fuzz books chaos test-vllm check lint web-check generate generate-check docs-check words-check fmt clean
