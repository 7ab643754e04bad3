# The one entry point: `make` lists the targets. Everything is installed into .venv, through pip and
# under constraints.txt; a second run does nothing when neither file nor pyproject.toml has changed.

SHELL := /bin/sh
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
ROOM ?= spectral_schedule
RUN_FLAGS ?= --quick
# Shapes and types of every annotated call are checked while the tests run.
CHECKED ?= noisewright,shape_checker.checked
PYTEST_FLAGS ?=

# A worker of the test runner uses one thread; more of them would only wait for each other.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) $(PYTEST_FLAGS)
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install -qq -c constraints.txt
BENCHMARKS = $(filter-out benchmarks/timing.py benchmarks/render.py,$(wildcard benchmarks/*.py))

.DEFAULT_GOAL := help
.PHONY: help install run test quick lint types bench docs clean

help:
	@echo "make install   .venv with the library and the tools of its developers"
	@echo "make run       one experiment on real photographs; prints the path of its report"
	@echo "               (ROOM=$(ROOM) RUN_FLAGS=$(RUN_FLAGS))"
	@echo "make test      lint, types and every test; what CI runs"
	@echo "make quick     the tests without the slow ones"
	@echo "make lint      format, style and who may import whom"
	@echo "make types     the type checker"
	@echo "make bench     every benchmark, and docs/performance.md from their numbers"
	@echo "make docs      the documentation, in site/"
	@echo "make clean     remove caches and built files; .venv and runs/ stay"

# The interpreter is looked for once, when there is no .venv yet. Debian ships `venv` without
# `ensurepip` until python3-venv is installed, and a version manager's shim may not run at all.
$(VENV)/.base: pyproject.toml constraints.txt
	@if test ! -x $(BIN)/python || ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	  found=; \
	  for python in $(PYTHON) python3.11 python3.12 python3.13 python3; do \
	    if $$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
	      >/dev/null 2>&1; then found=$$python; break; fi; \
	  done; \
	  if test -z "$$found"; then \
	    echo "noisewright needs Python 3.11 or newer with its venv module, and found:" >&2; \
	    for python in $(PYTHON) python3.11 python3.12 python3.13 python3; do \
	      if ! command -v $$python >/dev/null 2>&1; then echo "  $$python: not there"; \
	      elif ! $$python -c 'import sys' >/dev/null 2>&1; then echo "  $$python: does not run"; \
	      elif ! $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        echo "  $$python: too old"; \
	      else echo "  $$python: has no venv module"; fi; \
	    done >&2; \
	    echo "On Debian or Ubuntu: apt-get install python3 python3-venv." >&2; \
	    echo "Or name one: make PYTHON=/path/to/python3.11 install" >&2; \
	    exit 1; \
	  fi; \
	  echo "making $(VENV) with $$found"; \
	  $$found -m venv $(VENV); \
	fi
	@echo "installing noisewright into $(VENV) (a few minutes the first time)"
	@$(PIP) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@echo "installing the tools of developers into $(VENV)"
	@$(PIP) -e '.[dev]'
	@touch $@

install: $(VENV)/.dev

run: $(VENV)/.base
	@$(BIN)/python -m noisewright run $(ROOM) $(RUN_FLAGS)

lint: $(VENV)/.dev
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/lint-imports

types: $(VENV)/.dev
	$(BIN)/basedpyright

test: lint types
	$(PYTEST) --jaxtyping-packages=$(CHECKED)

quick: $(VENV)/.dev
	$(PYTEST) -m 'not slow and not gpu'

bench: $(VENV)/.dev
	@mkdir -p docs/benchmarks
	@for file in $(BENCHMARKS); do \
	  echo "$$file"; \
	  $(BIN)/python $$file --json --out docs/benchmarks/$$(basename $$file .py).json || exit 1; \
	done
	$(BIN)/python benchmarks/render.py

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "site/index.html"

clean:
	rm -rf site build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage
	find src tests benchmarks examples docs -name __pycache__ -type d -prune -exec rm -rf {} +
