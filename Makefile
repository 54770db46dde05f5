# Each target makes .venv when it is missing and installs what it needs, no more. `make` alone lists them.
#
#   PYTHON=python3.12   another Python (default: python3.11, else python3)
#   ARGS="-k expiry"    more arguments for pytest, the benchmark or the example
#   WORKERS=4           how many processes run the tests (default: two for each CPU, since tests wait; at most 8)

PYTHON ?=
ARGS ?=
WORKERS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); echo $$((n < 2 ? 2 : n > 4 ? 8 : n * 2)))

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTEST := $(BIN)/python -m pytest
TYPED := $(wildcard src tests benchmarks examples/report_exports)

# Where this is set every process of the tests compiles everything again, and there are thousands.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo chaos test quick check docs bench bench-quick matrix soak clean servers

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

demo: .venv/.has-cli ## see in a few seconds what a stale owner is, and how a guard stops it
	@$(BIN)/leasehold demo

chaos: .venv/.has-databases ## 8 workers that are frozen and killed: how many late writes get through, on Redis and PostgreSQL
	@tools/servers.sh redis postgresql
	@$(BIN)/python -m examples.report_exports $(ARGS)

quick: .venv/.has-test ## the fast tests: tests/unit, and the contract without servers; seconds
	$(PYTEST) -n 4 --dist worksteal -m "not slow and not soak" $(ARGS) tests/unit tests/contract

test: .venv/.has-test servers ## every test but the soak
	$(PYTEST) -n $(WORKERS) --dist worksteal -m "not soak" $(ARGS)

check: .venv/.has-dev ## lint, format, types, and who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(TYPED)
	$(BIN)/lint-imports --no-logo

docs: .venv/.has-docs ## build the documents as a site in build/docs; a warning or a broken link fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --config-file tools/docs/mkdocs.yml # with --quiet no warning counts

bench: .venv/.has-bench ## measure everything beside other libraries: build/bench gets a report, JSON and plots; minutes
	@tools/servers.sh redis postgresql mariadb etcd zookeeper
	$(BIN)/python -m benchmarks $(ARGS)

bench-quick: .venv/.has-bench ## measure what has a goal, with fewer rounds: under two minutes
	@tools/servers.sh redis
	$(BIN)/python -m benchmarks --quick $(ARGS)

matrix: .venv/.made servers ## the tests of clients against each supported redis-py; unit and contract on each other Python
	@PYTHON=$(BIN)/python tools/matrix.sh $(ARGS)

soak: .venv/.has-test servers ## the long rounds: minutes
	$(PYTEST) -m soak --timeout 1800 $(ARGS)

clean: ## remove .venv, caches and build results
	rm -rf .venv .venv-matrix .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---------------------------------------------------------------- what is installed
# Stamps: a target runs at once when its stamp is newer than pyproject.toml.

# No stamp: servers belong to the machine, not to .venv, and a look takes milliseconds.
servers:
	@tools/servers.sh

.venv/.made:
	@tools/venv.sh $(PYTHON)
	@touch $@

.venv/.has-cli: .venv/.made pyproject.toml
	$(PIP) install --editable '.[cli]'
	@touch $@

# Dependency groups need pip 25.1; a new virtual environment of Debian 12 has 23.0.
.venv/.has-groups: .venv/.made
	$(PIP) install --upgrade 'pip>=25.1'
	@touch $@

.venv/.has-%: .venv/.has-groups pyproject.toml
	$(PIP) install --editable '.[all]' --group $*
	@touch $@
