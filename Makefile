# One word per task; the same here and in CI. Everything depends on `setup`.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export GRETE_HOME ?= $(CURDIR)/.grete

.PHONY: setup demo test unit lint check bench services nightly clean

setup: $(STAMP)

$(STAMP): requirements/dev.txt pyproject.toml scripts/need.sh
	bash scripts/need.sh
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes --only-binary :none: -r requirements/build.txt
	$(BIN)/pip install --quiet --require-hashes --no-build-isolation -r requirements/dev.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

demo: setup
	$(BIN)/python examples/flights/demo.py

lint: setup
	$(BIN)/ruff check src tests examples benchmarks
	$(BIN)/ruff format --check src tests examples benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: setup
	$(BIN)/python -m pytest tests/unit tests/wire tests/property -q

test: lint services
	$(BIN)/python -m pytest -q

check: test

services: setup
	bash scripts/services.sh

nightly: services
	GRETE_NIGHTLY=1 $(BIN)/python -m pytest -q

bench: setup
	$(BIN)/python -m benchmarks.run

clean:
	rm -rf .grete
