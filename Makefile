# Everything here sets itself up: all it needs is git, make and Python >= 3.11 with venv.
PYTHON ?= python3

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
# What the tests use besides Python: a broker to talk to, cyclictest to compare the real-time loop with, and a C compiler
# with headers for the fake of NI's driver.
TEST_PROGRAMS := mosquitto mosquitto_pub cyclictest gcc
TEST_PACKAGES := mosquitto mosquitto-clients rt-tests gcc libc6-dev

.DEFAULT_GOAL := help
.PHONY: help demo test check docs format lock clean test-programs python

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(STAMP)  ## run the verification circuit against a simulated rig, live in this terminal
	$(BIN)/hilserver demo

test: $(STAMP) test-programs  ## run all tests; PYTEST="-k relief" passes options on
	$(BIN)/python -m pytest $(PYTEST)

check: $(STAMP)  ## style, types, layers, documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(MAKE) --no-print-directory docs

# Nothing of it comes from the network. (The theme's note on its own future is no matter of a build.)
docs: $(STAMP)  ## build the documentation into site/, strictly
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

format: $(STAMP)  ## bring the source into its standard form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Run it with the oldest Python supported; delete the file first to take newer versions.
lock: $(STAMP)  ## write requirements.lock anew after a change of the dependencies in pyproject.toml
	CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras \
	    --extra dev --extra embedded-broker --output-file requirements.lock \
	    --no-emit-index-url --no-emit-find-links --no-emit-trusted-host pyproject.toml

clean:  ## remove the environment and everything generated
	rm -rf $(VENV) build dist site *.egg-info drivers/*.egg-info .hypothesis .*_cache
	find hilserver drivers tests -name __pycache__ -prune -exec rm -rf {} +

python:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found. Choose one: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "$$($(PYTHON) --version) is too old: hilserver needs 3.11. Choose one: make PYTHON=python3.11 ..." >&2; exit 1; }

$(STAMP): requirements.lock pyproject.toml | python
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

# Root on Debian: installed. Anyone else is told; tests that need a program say so where they are skipped.
test-programs:
	@missing=; for program in $(TEST_PROGRAMS); do \
	    PATH="$$PATH:/usr/sbin" command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	echo '#include <stdio.h>' | gcc -E - >/dev/null 2>&1 || missing="$$missing libc6-dev"; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    export DEBIAN_FRONTEND=noninteractive; \
	    apt-get update -qq && apt-get install -y -qq --no-install-recommends $(TEST_PACKAGES); \
	else echo "Missing for some of the tests:$$missing. On Debian: apt-get install $(TEST_PACKAGES)"; fi
