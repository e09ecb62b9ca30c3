# On a fresh machine, Python 3.11 or newer is all that is needed: every target sets up what it uses.
CANDIDATES := python3 python3.14 python3.13 python3.12 python3.11
PYTHON ?= $(shell for name in $(CANDIDATES); do \
	if $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	echo $$name; break; fi; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
HOURS ?= 1
DEMO := $(VENV)/.demo

.PHONY: help install demo docs paper test lint format test-fast test-plain test-slow test-versions \
	test-oldest nightly licences wheel release-check clean

help:
	@echo "make demo       train two models, prove, check and compare them in a report"
	@echo "make docs       build the documentation as a site, in site/"
	@echo "make paper      repeat the paper's tables and figures; takes hours, and its data"
	@echo "                in the folder TREEPROOF_PAPER_DATA (see experiments/README.md)"
	@echo "make test       every check: format, lint, types, import contracts, tests"
	@echo "make test-fast  the tests alone"
	@echo "make test-plain  kernel tests as plain Python: nothing is compiled"
	@echo "make test-slow  long random soundness runs and full-size models"
	@echo "make test-versions  models of the oldest and newest releases of the libraries"
	@echo "make test-oldest  the tests with the oldest releases of all dependencies that are allowed"
	@echo "make nightly HOURS=1  slow suites, planted bugs, campaigns with new seeds, the speed table"
	@echo "make release-check  sdist and wheel, installed and tried on every Python that there is"
	@echo "make lint       format, lint, types and import contracts alone"
	@echo "make format     rewrite the sources in the house format"
	@echo "make wheel      a wheel that carries compiled kernels, in dist/"
	@echo "make licences   the licences of all dependencies, in docs/contributing/dependencies.md"
	@echo "make clean      remove the environment and everything that was built"

install: $(STAMP)

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "treeproof needs Python 3.11 or newer; none was found." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Groups of dependencies need a newer pip than a fresh environment of Python 3.11 has.
$(STAMP): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable . --group dev
	touch $(STAMP) $(DEMO)

# The demo needs far less than the checks do.
$(DEMO): pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check --editable ".[demo]"
	touch $(DEMO)

demo: $(DEMO)
	$(BIN)/treeproof demo

docs: install
	$(BIN)/python scripts/build-docs site

paper: install
	$(BIN)/python -m experiments.paper

test: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -m "not slow" -n auto --dist worksteal

test-fast: install
	$(BIN)/pytest -m "not slow" -n auto --dist worksteal

test-slow: install
	$(BIN)/pytest -m slow -n auto --dist worksteal

# Environments of many releases, a gigabyte of downloads on first use.
test-versions: install
	$(BIN)/python scripts/test-versions --environments build/releases

# With the oldest releases that pyproject.toml allows, of which many are for the oldest Python only.
test-oldest:
	$(or $(shell command -v python3.11),$(PYTHON)) scripts/test-oldest

nightly: install
	$(BIN)/python scripts/nightly --hours $(HOURS)

licences: install
	$(BIN)/python scripts/list-licences

release-check:
	$(PYTHON) scripts/release-check

wheel: install
	$(BIN)/python scripts/build-wheel

# Kernels as plain Python: breakpoints and profilers work in them, and nothing is compiled.
test-plain: install
	TREEPROOF_PLAIN=always $(BIN)/pytest -m "not slow" -n auto --dist worksteal tests/unit/kernels tests/unit/engines

lint: install
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/lint-imports

format: install
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) dist build demo-output site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
