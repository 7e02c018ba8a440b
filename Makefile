# Everything runs in .venv, which the first call makes; a stamp file a set of extras keeps the next call from installing.
# PYTHON=python3.12 make test takes another interpreter, TESTS=tests/unit make test fewer tests.

PYTHON ?= python3
VENV ?= .venv
TESTS ?= tests
JOBS ?= auto

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help run run-encrypted test test-slow test-peers lint format types bench bench-smoke legalize-table all clean

help:
	@echo "make run         train a classifier on real data, on a backend that can only add, multiply and matmul"
	@echo "make run-encrypted  train three models on encrypted data, on a server that never sees them"
	@echo "make test        the tests, in a few minutes"
	@echo "make test-slow   the tests that take long or much memory"
	@echo "make test-peers  the optimizers against PyTorch and optax, which it installs"
	@echo "make lint        style and format, without a change; make format rewrites"
	@echo "make types       strict type check"
	@echo "make bench       every benchmark; writes the tables of docs/performance.md"
	@echo "make bench-smoke every benchmark at its smallest size; writes nothing"
	@echo "make legalize-table  every operator on every ready target, verified; writes the table of docs/legalize.md"
	@echo "make all         lint, types, test, test-slow, test-peers, bench-smoke"
	@echo "make clean       remove $(VENV) and what tools left behind"

# ------------------------------------------------------------------------------------------------------ environment

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "tinychain-autodiff needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || true)." >&2; \
		echo "Install one and name it, for example: make PYTHON=python3.12 run" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(STAMP)-%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	@touch $@

# ------------------------------------------------------------------------------------------------------------- work

run: $(STAMP)-examples
	$(BIN)/python examples/breast_cancer.py

run-encrypted: $(STAMP)-examples,ckks
	$(BIN)/python -m examples.encrypted

test: $(STAMP)-dev,examples,verify,ckks
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(TESTS)

test-slow: $(STAMP)-dev,examples,verify,ckks
	$(BIN)/python -m pytest -m slow $(TESTS)

test-peers: $(STAMP)-dev,examples,verify,ckks,peers
	$(BIN)/python -m pytest -m peers $(TESTS)

lint: $(STAMP)-dev,examples
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP)-dev,examples
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP)-dev,examples,verify,ckks
	$(BIN)/mypy

bench: $(STAMP)-dev,bench,ckks,peers
	$(BIN)/python -m pytest benchmarks --write-tables --benchmark-columns=min,median,rounds

bench-smoke: $(STAMP)-dev,bench,ckks,peers
	$(BIN)/python -m pytest benchmarks --smoke --benchmark-columns=min

legalize-table: $(STAMP)-dev,verify
	$(BIN)/python -m benchmarks.legalize_table

all: lint types test test-slow test-peers bench-smoke

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .benchmarks build dist
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +
