# Two commands do everything: `make demo` and `make test`. Each sets up what it needs, and no more.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CORE_STAMP := $(VENV)/.installed-core
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
WORKERS ?= 2

.PHONY: help venv test mutants check format demo docs site dist bench bench-speed bench-torch clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

venv: $(STAMP)  ## create .venv with the package and its development tools

$(CORE_STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	touch $@

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[dev]'
	touch $(CORE_STAMP) $@

test: $(STAMP)  ## run every test there is
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

mutants: $(STAMP)  ## damage the code on purpose: at least 95 in 100 changes must fail a test (resumes)
	$(BIN)/python tools/mutants.py --at-least 0.95

check: $(STAMP)  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)  ## put the code into the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: $(CORE_STAMP)  ## real data, a fit, a scorecard, an HTML report and a what-if page, in under a minute
	$(BIN)/varprop demo

DOCS_STAMP := $(VENV)/.installed-docs
$(DOCS_STAMP): $(STAMP)
	$(PIP) --editable '.[docs]'
	touch $@

site: $(DOCS_STAMP)  ## the documentation as pages in site/, warnings are errors
	$(BIN)/python -m sphinx -W --keep-going -n -q -b html -d site/.doctrees docs site

DRAWN := predictive_band model_and_noise calibration uncertain_inputs correlated_outputs plot_gallery
docs: site $(DRAWN:%=site/.drawn/%.png)  ## the same, with its code run and its gallery drawn anew
	cp $(DRAWN:%=site/.drawn/%.png) site/_images/
	$(BIN)/python -m pytest -q -n $(WORKERS) tests/test_examples.py -k page
	@echo "Open site/index.html."

site/.drawn/%.png: examples/%.py $(STAMP)
	mkdir -p $(@D)
	$(BIN)/python -W error $< --output $@

BENCH_STORE ?= results.sqlite
bench: $(STAMP)  ## the paper's Table 1, FAWN columns, ten splits, live (under an hour on two cores)
	$(BIN)/varprop bench table1 --methods fawn-vi,fawn-ropd,fawn-bern --splits 10 --store $(BENCH_STORE)
	$(BIN)/varprop report --tables 1 --store $(BENCH_STORE)

bench-speed: $(STAMP)  ## speed of core, training and regressor, as ratios measured in one run each
	$(BIN)/python benchmarks/core_speed.py
	$(BIN)/python benchmarks/training_speed.py
	$(BIN)/python benchmarks/regressor_speed.py
	$(BIN)/python benchmarks/cli_speed.py

dist: $(STAMP)  ## a wheel and an sdist in dist/, each tried in an environment of its own
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python tools/clean_install.py dist/*.whl dist/*.tar.gz

# An environment of its own: torch first and alone, since anything newer pulls gigabytes of GPU packages.
bench-torch:  ## training throughput against torch-based libraries and pytagi
	test -x .venv-torch/bin/python || $(PYTHON) -m venv .venv-torch
	.venv-torch/bin/python -m pip install --quiet torch==2.13.0
	.venv-torch/bin/python -m pip install --quiet --no-deps bayesian-torch==0.5.0 torchbnn==1.2 pytagi==0.1.12
	.venv-torch/bin/python -m pip install --quiet --editable .
	.venv-torch/bin/python benchmarks/against_torch.py

clean:  ## remove the environment and caches
	rm -rf $(VENV) .venv-torch .mypy_cache .pytest_cache .ruff_cache .hypothesis site dist predictive_band.png varprop-demo*.html
