# Everything a developer or a CI job does here is a target of this file; `make` lists them.
# Needed: Python 3.11+, Go 1.26+ (only to build the control plane that tests run on), make, git.
# Written to: this folder, and one cache folder ($TONNAGE_CACHE, default ~/.cache/tonnage).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# The order of the steps is the order in which a mistake is cheapest to find; each one that can
# use several cores does so itself.
.NOTPARALLEL:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCKED := $(VENV)/.locked
INSTALLED := $(VENV)/.installed

export TONNAGE_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tonnage
export PIP_CACHE_DIR ?= $(TONNAGE_CACHE)/pip
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export UV_CACHE_DIR ?= $(TONNAGE_CACHE)/uv
export GOCACHE ?= $(TONNAGE_CACHE)/go-build
export GOMODCACHE ?= $(TONNAGE_CACHE)/go-mod
# Tests start hundreds of Python processes. Without bytecode files, each compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

STACK ?= .stack
FLEET ?= mixed

define check_python
command -v $(PYTHON) >/dev/null || { \
  echo "$(PYTHON) is not on PATH: install Python 3.11 or newer, or name it: make PYTHON=..." >&2; \
  exit 1; }; \
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
  echo "$(PYTHON) is $$($(PYTHON) -V 2>&1), Tonnage needs 3.11 or newer:" \
    "install one and name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
endef

# Both are to be seen, whichever fails. mypy has one process, so the tests use the other cores.
define next_to_types
$(BIN)/mypy & types=$$!; failed=0; $(1) || failed=$$?; wait $$types; exit $$failed
endef

##@ Start here

.PHONY: help
help: ## Show this list
	@awk -v bold="$(if $(MAKE_TERMOUT),\033[1m)" -v plain="$(if $(MAKE_TERMOUT),\033[0m)" ' \
	  BEGIN { FS = ":.*## "; print "Usage: make <target>" } \
	  /^##@ / { print "\n" bold substr($$0, 5) plain } \
	  /^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: install
install: $(INSTALLED) ## Make .venv from the lock file; .venv/bin/tonnage works afterwards

.PHONY: demo
demo: install control-plane ## Show the operator at work on a real control plane with a mixed GPU fleet
	@$(BIN)/python -m e2e.demo

.PHONY: check
check: lint ## Lint, then types and the fast unit tests side by side: a minute, for each change
	@$(call next_to_types,$(BIN)/pytest -q --numprocesses=auto --dist=loadfile -m "not slow" tests/unit)

.PHONY: test
test: lint test-unit verify test-arguments test-integration ## Everything that must pass before a change lands

##@ Checks

.PHONY: lint
lint: install ## Style, formatting and the import law
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

.PHONY: type
type: install ## mypy --strict
	$(BIN)/mypy

.PHONY: test-unit
test-unit: install ## Types, and unit, golden, property and fault tests: no network, no cluster
	@$(call next_to_types,$(BIN)/pytest --numprocesses=auto --dist=loadfile \
	  tests/unit tests/golden tests/property tests/faults)

.PHONY: test-faults-long
test-faults-long: install ## Each scenario with every view of the cluster there is: some ten minutes
	$(BIN)/pytest tests/faults/test_views.py --views=1000

# vLLM's CPU build comes as a wheel for these; elsewhere what vLLM printed as its help has to do.
VLLM_WHEEL := $(filter Linux-x86_64 Linux-aarch64,$(shell uname -s)-$(shell uname -m))

.PHONY: test-arguments
test-arguments: install ## What is rendered, read by the argument parser of the real vLLM (0.4 GB once)
ifeq ($(VLLM_WHEEL),)
	@echo "vLLM has no CPU wheel for $$(uname -s) on $$(uname -m): left to tests/unit/engines/vllm/test_help.py"
else
	$(BIN)/pytest tests/vllm
endif

.PHONY: test-vllm
test-vllm: install ## A real vLLM server on this CPU, run as a pod would: minutes, and 6 GB once; not in `make test`
	$(BIN)/pytest tests/vllm/server

.PHONY: test-sglang
test-sglang: install ## SGLang's own parser, memory and metrics against what is recorded of them: minutes, and 6 GB once
	$(BIN)/pytest tests/sglang/oracle

.PHONY: explore
explore: install ## Look for new counterexamples of the properties; `make test` tries the same ones always
	TONNAGE_PROPERTIES=explore $(BIN)/pytest tests/property

# Each worker has a control plane of its own, and takes 2 GiB of memory. Some tests mostly wait, so
# there are more workers than cores; conftest.py says which files start first.
CLUSTER_WORKERS ?= 7

# API servers take most of the processor time of these tests, a fifth of it to collect garbage.
GO_GARBAGE := GOGC=400 GOMEMLIMIT=1GiB

.PHONY: test-integration
test-integration: install binaries ## Integration tests and journeys, each worker on a real control plane of its own
	$(GO_GARBAGE) $(BIN)/pytest --numprocesses=$(CLUSTER_WORKERS) --dist=loadfile \
	  --no-loadscope-reorder --durations=20 tests/integration e2e

.PHONY: verify
verify: install ## Generated files are what their sources generate
	@folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	$(BIN)/tonnage crds --output-dir "$$folder" >/dev/null; \
	for copy in crds charts/tonnage-crds/files; do \
	  diff -ru $$copy "$$folder" || { \
	    echo "$$copy differs from the models in operator/tonnage/api: run 'make crds' and commit" >&2; \
	    exit 1; }; \
	done; \
	(cd charts/tonnage/files && find . -type f) | while read -r file; do \
	  diff -u "manifests/$$file" "charts/tonnage/files/$$file" || { \
	    echo "charts/tonnage/files differs from manifests/: run 'make charts' and commit" >&2; \
	    exit 1; }; \
	done; \
	$(BIN)/tonnage rules --output "$$folder/compatibility.md" >/dev/null; \
	diff -u docs/compatibility.md "$$folder/compatibility.md" || { \
	  echo "docs/compatibility.md is not what the rules say: run 'make rules' and commit" >&2; \
	  exit 1; }; \
	$(BIN)/tonnage reference --output "$$folder/api.md"; \
	diff -u docs/api.md "$$folder/api.md" || { \
	  echo "docs/api.md is not what the CRDs say: run 'make api-reference' and commit" >&2; \
	  exit 1; }; \
	$(BIN)/python -m e2e.programs.argo_cd_settings --output "$$folder/argocd-cm.yaml"; \
	diff -u manifests/argo-cd/argocd-cm.yaml "$$folder/argocd-cm.yaml" || { \
	  echo "argocd-cm.yaml is not what the Lua files say: run 'make argo-cd' and commit" >&2; \
	  exit 1; }; \
	$(BIN)/python -m accuracy --page "$$folder/accuracy.md" --quiet; \
	diff -u docs/accuracy.md "$$folder/accuracy.md" || { \
	  echo "docs/accuracy.md is not what is measured: run 'make accuracy-page' and commit" >&2; \
	  exit 1; }; \
	for figures in docs/bench-*.json; do \
	  [ -e $$figures ] || continue; \
	  page=$$(basename $$figures .json).md; \
	  $(BIN)/python -m benchmarks.pages.page $$figures --output "$$folder/$$page"; \
	  diff -u docs/$$page "$$folder/$$page" || { \
	    echo "docs/$$page is not what was measured: run 'make bench-pages' and commit" >&2; \
	    exit 1; }; \
	done

.PHONY: accuracy
accuracy: install ## Score `tonnage fit` against real vLLM: figures, floors, worst records, timings
	@$(BIN)/python -m accuracy $(if $(RAISE),--raise-floors)

.PHONY: bench
bench: install ## Print the figures of placement: recognition, reasons, speed, reconciles, events, scrape, estimates, optimum, double booking, days
	@for name in walk recognition reasons fleet reconcile events scrape throughput optimum double_booking simulator day_of_load; do \
	  $(BIN)/python -m benchmarks.in_memory.$$name || exit 1; \
	done

# SHORT=1 tries a benchmark with a tenth of its load; what it writes is no page of docs/ then.
SHORT ?=
BENCH_FOLDER ?= $(if $(SHORT),build/bench,docs)

.PHONY: bench-cluster
bench-cluster: install control-plane ## Measure the operator next to Go controllers on a real control plane: 25 minutes (SHORT=1: 5)
	@mkdir -p $(BENCH_FOLDER)
	@$(BIN)/python -m benchmarks.cluster.latency --figures $(BENCH_FOLDER)/bench-cluster.json $(if $(SHORT),--short)
	@$(BIN)/python -m benchmarks.pages.page $(BENCH_FOLDER)/bench-cluster.json --output $(BENCH_FOLDER)/bench-cluster.md
	@$(BIN)/python -m benchmarks.cluster.request_cost $(if $(SHORT),--times 15)

.PHONY: bench-fleet
bench-fleet: install control-plane ## Measure 10,000 nodes, 40,000 pods and 5,000 objects, and how cost grows up to that: an hour (SHORT=1)
	@mkdir -p $(BENCH_FOLDER)
	@$(BIN)/python -m benchmarks.cluster.fleet --shares 0.125 0.25 0.5 1 --figures $(BENCH_FOLDER)/bench-fleet.json $(if $(SHORT),--short)
	@$(BIN)/python -m benchmarks.pages.page $(BENCH_FOLDER)/bench-fleet.json --output $(BENCH_FOLDER)/bench-fleet.md
	@$(BIN)/python -m benchmarks.pages.fleet_plot $(BENCH_FOLDER)/bench-fleet.json $(BENCH_FOLDER)/scale.svg

.PHONY: bench-fleet-dra
bench-fleet-dra: install control-plane ## Measure the same fleet with 80,000 devices in ResourceSlices and 40,000 ResourceClaims: half an hour (SHORT=1)
	@mkdir -p $(BENCH_FOLDER)
	@$(BIN)/python -m benchmarks.cluster.fleet --dra --figures $(BENCH_FOLDER)/bench-fleet-dra.json $(if $(SHORT),--short)
	@$(BIN)/python -m benchmarks.pages.page $(BENCH_FOLDER)/bench-fleet-dra.json --output $(BENCH_FOLDER)/bench-fleet-dra.md

.PHONY: bench-pages
bench-pages: install ## Write the pages of bench-cluster and bench-fleet anew from the figures of their last runs
	@for figures in docs/bench-*.json; do \
	  [ ! -e $$figures ] || $(BIN)/python -m benchmarks.pages.page $$figures --output $${figures%.json}.md; \
	done

MINUTES ?= 60

.PHONY: soak
soak: install control-plane ## Churn for MINUTES (60) with lost watches: nothing may be kept, nothing may grow; for the night
	@$(BIN)/python -m e2e.soak --minutes $(MINUTES)

##@ Generated files

.PHONY: crds
crds: install ## Write crds/ and its copy in the chart from the models in operator/tonnage/api
	$(BIN)/tonnage crds --output-dir crds
	$(BIN)/tonnage crds --output-dir charts/tonnage-crds/files

# Helm reads no file outside of a chart. A file that the chart is to have is copied there once by hand.
.PHONY: charts
charts: ## Bring charts/tonnage/files in line with manifests/, of which they are copies
	@cd charts/tonnage/files && find . -type f -exec cp ../../../manifests/{} {} \;

.PHONY: api-reference
api-reference: install ## Write docs/api.md from the models in operator/tonnage/api
	$(BIN)/tonnage reference --output docs/api.md

.PHONY: rules
rules: install ## Write docs/compatibility.md from the catalogue's rules
	$(BIN)/tonnage rules --output docs/compatibility.md

.PHONY: argo-cd
argo-cd: install ## Write manifests/argo-cd/argocd-cm.yaml from the Lua files beside it
	$(BIN)/python -m e2e.programs.argo_cd_settings

.PHONY: accuracy-page
accuracy-page: install ## Write docs/accuracy.md from the records in accuracy/
	@$(BIN)/python -m accuracy --page docs/accuracy.md --quiet

.PHONY: golden
golden: install ## Rewrite the expected outputs of the golden tests; read the diff before committing
	TONNAGE_GOLDEN=write $(BIN)/pytest tests/golden

# uv resolves for every platform and Python at once, which pip cannot. It is needed for this alone,
# so it lives in an environment that is thrown away.
.PHONY: lock
lock: ## Bring requirements/ in line with pyproject.toml; to upgrade, remove the lock files first
	@$(check_python)
	@folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	$(PYTHON) -m venv "$$folder"; \
	"$$folder/bin/pip" install --quiet uv; \
	compile() { "$$folder/bin/uv" pip compile --quiet --universal --generate-hashes \
	  --python-version 3.11 --no-header "$$@"; }; \
	compile pyproject.toml --group dev --output-file requirements/dev.lock >/dev/null; \
	compile pyproject.toml --constraints requirements/dev.lock \
	  --output-file requirements/run.lock >/dev/null; \
	compile --group build --constraints requirements/dev.lock \
	  --output-file requirements/build.lock >/dev/null; \
	compile --no-annotate requirements/vllm.in --override requirements/vllm.override \
	  --output-file requirements/vllm.lock >/dev/null; \
	compile --no-annotate --no-deps requirements/sglang.in \
	  --output-file requirements/sglang.lock >/dev/null; \
	compile --no-annotate --no-deps requirements/vllm-parser.in \
	  --constraints requirements/vllm.lock --output-file requirements/vllm-parser.lock >/dev/null

##@ Image

DIST ?= dist
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
ENGINE ?= $(firstword $(foreach engine,podman docker buildah,$(if $(shell command -v $(engine)),$(engine))))
BASE ?=

.PHONY: sbom
sbom: install ## Write DIST (dist)/tonnage-sbom.cdx.json: what the image adds to its base, in CycloneDX
	@mkdir -p $(DIST)
	@PYTHONWARNINGS=ignore $(BIN)/cyclonedx-py requirements --pyproject pyproject.toml \
	  --output-reproducible --output-file - requirements/run.lock \
	  | $(BIN)/python -m e2e.programs.bill_of_materials --output $(DIST)/tonnage-sbom.cdx.json
	@echo "$(DIST)/tonnage-sbom.cdx.json"

.PHONY: image
image: ## Build the container image tonnage:VERSION on BASE=name@sha256:digest with podman, docker or buildah
	@[[ "$(BASE)" =~ ^[^@]+@sha256:[0-9a-f]{64}$$ ]] || { \
	  echo "BASE is '$(BASE)', expected an image with Python by digest: make image BASE=name@sha256:..." \
	    "(the head of the Containerfile says how to find one)" >&2; exit 1; }
	@[ -n "$(ENGINE)" ] || { \
	  echo "none of podman, docker and buildah is on PATH: install one, or name it: make ENGINE=..." >&2; \
	  exit 1; }
	$(ENGINE) build --file Containerfile --tag tonnage:$(VERSION) --build-arg BASE=$(BASE) \
	  --build-arg VERSION=$(VERSION) --build-arg REVISION=$$(git rev-parse HEAD) .

##@ Control plane

.PHONY: binaries
binaries: install ## Find or build all programs that tests run on: the control plane, helm, Prometheus, Argo CD
	@$(BIN)/python -m e2e.harness.binaries

.PHONY: control-plane
control-plane: install ## Find or build etcd, the Kubernetes servers, kubectl, KWOK and LeaderWorkerSet only
	@$(BIN)/python -m e2e.harness.binaries control-plane

.PHONY: stack-up
stack-up: install control-plane ## Start a control plane with GPU nodes in STACK (.stack) from e2e/fleets/FLEET.yaml (mixed)
	@$(BIN)/python -m e2e.harness.stack up --dir $(STACK)
	@$(BIN)/python -m e2e.nodes.fleet apply --kubeconfig $(STACK)/kubeconfig e2e/fleets/$(FLEET).yaml

.PHONY: stack-down
stack-down: install ## Stop the control plane in STACK
	@$(BIN)/python -m e2e.harness.stack down --dir $(STACK)

##@ Housekeeping

.PHONY: clean
clean: ## Remove what make built here; the cache folder stays
	@for folder in $(STACK) .demo; do \
	  if [ -x $(BIN)/python ] && [ -d $$folder ]; then \
	    $(BIN)/python -m e2e.harness.stack down --dir $$folder; \
	  fi; \
	done
	rm -rf $(VENV) $(STACK) .demo dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	  .import_linter_cache .grimp_cache
	find operator tests e2e -name __pycache__ -type d -prune -exec rm -rf {} +

# An interrupted install leaves no stamp, so the next one starts from an empty environment.
$(LOCKED): requirements/dev.lock
	@$(check_python)
	@echo "Installing the locked dependencies into $(VENV)"
	@$(PYTHON) -m venv --clear $(VENV) || { \
	  echo "$(PYTHON) cannot make virtual environments: install its venv and ensurepip modules" \
	    "(on Debian and Ubuntu the package python3-venv)" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements/dev.lock
	@touch $@

# `pip check` tells when pyproject.toml asks for what the lock file does not hold.
$(INSTALLED): $(LOCKED) pyproject.toml
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m pip check --quiet || { echo "run 'make lock' and commit its result" >&2; exit 1; }
	@touch $@
