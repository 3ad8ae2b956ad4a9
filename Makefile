# Two commands matter: `make demo` and `make test`. Both make the environment they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# LlamaIndex's packages beside SDKs newer than they allow.
NEWEST := tests/llamaindex/pins_newest_sdks.txt
# The environment is made again whenever its pins change.
PINS := $(shell cat pyproject.toml constraints.txt $(NEWEST) core/headstay/_version.py | sha256sum | cut -c1-16)
DEMO_STAMP := $(VENV)/.demo-$(PINS)
DEV_STAMP := $(VENV)/.dev-$(PINS)
# A second one holds LlamaIndex with the SDKs that it works with, and no LangChain.
LLAMA_VENV ?= .venv-llama
LLAMA_BIN := $(LLAMA_VENV)/bin
LLAMA_PINS := $(shell cat pyproject.toml tests/llama/pins.txt core/headstay/_version.py | sha256sum | cut -c1-16)
LLAMA_STAMP := $(LLAMA_VENV)/.made-$(LLAMA_PINS)
LLAMA_EXTRAS := emulator,semantic,llama-index-openai,llama-index-anthropic
JOBS ?= 2

.PHONY: setup demo demo-local test check tests test-llama test-local bench bench-local docs clean

setup: $(DEV_STAMP)

$(DEMO_STAMP):
	test ! -e $(VENV) || ls $(VENV)/.*-$(PINS) >/dev/null 2>&1 || rm -rf $(VENV)
	test -e $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[demo]"
	touch $@

$(DEV_STAMP): $(DEMO_STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r $(NEWEST)
	touch $@

$(LLAMA_STAMP):
	rm -rf $(LLAMA_VENV)
	$(PYTHON) -m venv $(LLAMA_VENV)
	$(LLAMA_BIN)/python -m pip install --quiet --disable-pip-version-check -r tests/llama/pins.txt -e ".[$(LLAMA_EXTRAS)]"
	touch $@

demo: $(DEMO_STAMP)
	$(BIN)/headstay demo

# Real vLLM, in .local/: installed at the first run (2 GB, some minutes) and again whenever its pins change.
demo-local bench-local: export HEADSTAY_LOCAL_HOME ?= $(CURDIR)/.local
demo-local: $(DEMO_STAMP)
	$(BIN)/headstay local install
	$(BIN)/headstay demo --local

test: check tests

check: $(DEV_STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs cookbook core integrations middleware
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	PYTHONPATH=core:integrations:middleware $(BIN)/lint-imports

tests: $(DEV_STAMP)
	$(BIN)/pytest -n $(JOBS)

test-llama: $(LLAMA_STAMP)
	$(LLAMA_BIN)/pytest -n $(JOBS) tests/llamaindex tests/llama

# Real vLLM, in .local/ as above.
test-local: $(DEV_STAMP)
	$(BIN)/pytest tests/local

bench: $(DEV_STAMP)
	for script in $(filter-out bench/local_%,$(wildcard bench/*.py)); do $(BIN)/python $$script || exit 1; done

bench-local: $(DEV_STAMP)
	$(BIN)/headstay local install
	for script in $(wildcard bench/local_*.py); do $(BIN)/python $$script || exit 1; done

docs: $(DEV_STAMP)
	$(BIN)/pytest -n $(JOBS) tests/docs

clean:
	rm -rf $(VENV) $(LLAMA_VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
