PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
CODE := $(wildcard src tests benchmarks examples conftest.py)

.DEFAULT_GOAL := help
.PHONY: help test demo quick bench format clean

help: ## list the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 10

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "levydiff needs Python 3.10 or newer; $(PYTHON) is older: try make PYTHON=python3.11" >&2; exit 1; }
	@echo "installing levydiff and its dependencies into .venv (a minute or so, once)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

test: $(STAMP) ## lint, format check, types, doctests, tests
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --doctest-modules src --doctest-glob=README.md README.md
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 tests

demo: $(STAMP) ## heavy-tailed against Gaussian diffusion, about two minutes: a table and a picture
	$(BIN)/levydiff demo --out demo

quick: $(STAMP) ## the paper's Table 2 in small, on all cores, in under three minutes
	$(BIN)/levydiff reproduce table2 --quick

bench: $(STAMP) ## speed and memory, as ratios to a baseline of the same run
	$(BIN)/python benchmarks/core.py
	$(BIN)/python benchmarks/train.py
	$(BIN)/python benchmarks/images.py

format: $(STAMP) ## rewrite the code in the house format
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

clean: ## delete .venv, caches and build output
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache src/*.egg-info
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
