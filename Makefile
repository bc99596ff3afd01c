# Two commands do everything: `make demo` and `make test`. Each sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2

.PHONY: help venv test test-slow test-oldest check format demo bench clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

venv: $(STAMP)  ## create .venv with the package and its development tools

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

test: $(STAMP)  ## run the whole test suite
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow"

test-slow: $(STAMP)  ## run the tests that take minutes
	$(BIN)/python -m pytest -m slow

check: $(STAMP)  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)  ## put the code into the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: $(STAMP)  ## the main job, printed and saved as a picture
	$(BIN)/python examples/predictive_band.py --output predictive_band.png

bench: $(STAMP)  ## speed of the core, as ratios measured in one run
	$(BIN)/python benchmarks/core_speed.py

clean:  ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis predictive_band.png
