# On a fresh machine, Python 3.11 or newer is all that is needed: every target sets up what it uses.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help install demo test lint format test-fast test-slow clean

help:
	@echo "make demo       train small models, verify them, show what was found"
	@echo "make test       every check: format, lint, types, import contracts, tests"
	@echo "make test-fast  the tests alone"
	@echo "make test-slow  long random soundness runs and full-size models"
	@echo "make format     rewrite the sources in the house format"

install: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "treeproof needs Python 3.11 or newer; run make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $(STAMP)

demo: install
	$(BIN)/treeproof demo

test: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -m "not slow" -n auto

test-fast: install
	$(BIN)/pytest -m "not slow" -n auto

test-slow: install
	$(BIN)/pytest -m slow -n auto

lint: install
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/lint-imports

format: install
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) dist demo-output site .pytest_cache .mypy_cache .ruff_cache
