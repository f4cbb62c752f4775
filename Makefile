# Two commands do it all: `make demo` shows a run, `make test` checks everything.

PYTHON ?= python3
VENV ?= .venv
BIN := $(abspath $(VENV))/bin
INSTALLED := $(VENV)/.installed
WORKERS ?= 2

.PHONY: demo test check format openapi reference wheel test-wheel clean

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[launcher,demo,test]'
	touch $@

## Train a small model on 4 nodes of this machine: about 20 s once installed.
demo: $(INSTALLED)
	@state=$$(mktemp -d) && PATH="$(BIN):$$PATH" OMP_NUM_THREADS=1 $(BIN)/rdzv launch --state-dir $$state \
	  --rdzv-id demo --nnodes 4 --nproc-per-node 2,1,1,1 -- examples/digits.py; \
	  code=$$?; if [ $$code -eq 0 ]; then rm -r $$state; fi; exit $$code

## The everyday suite.
test: $(INSTALLED)
	$(BIN)/python -m pytest -n $(WORKERS) $(PYTEST_ARGS)

## Lint, format, types, import contracts.
check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

## Write docs/openapi.json anew.
openapi: $(INSTALLED)
	$(BIN)/python -m rendezvous.server.openapi > docs/openapi.json

## Write the tables of docs/reference.md anew.
reference: $(INSTALLED)
	$(BIN)/python -m tests.test_docs

wheel: $(INSTALLED)
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

## The suite against the built wheel, in an environment and a folder without the sources.
test-wheel: wheel
	rm -rf build/wheel && mkdir -p build/wheel
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/python -m pip install --quiet "$$(echo dist/*.whl)[launcher,demo,test]"
	cp -r tests examples docs README.md CHANGELOG.md pyproject.toml build/wheel/
	cd build/wheel && venv/bin/python -m pytest -n $(WORKERS) $(PYTEST_ARGS)

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
