# Everything is run from a virtual environment that is made here from the hash-locked files.
#   make up                     all of it on this machine (SWITCHGEAR_PORT, SWITCHGEAR_GATEWAY_PORT,
#                               SWITCHGEAR_VAR, DEMO=0, PYTHON)
#   make test                   the tests (RUNNERS=4)    make check        everything but the tests
#   make e2e                    the whole product
#   make bench [ONLY=name]      benchmarks               make screenshots  the screens as pictures
#   make soak                   ten minutes of load while everything is killed

VENV ?= .venv
# Test runners side by side, each with a Postgres of its own; a file's tests stay in one of them.
# Two left two cores idle for most of the time: much of a test is waiting. Files are taken in the
# order of tests/conftest.py, not by their number of tests.
RUNNERS ?= 4
PY = $(VENV)/bin/python
INSTALL = python=$$(sh controlplane/local/python.sh) && "$$python" -m controlplane.local.install --venv "$(VENV)"
# Settings for commands that load Django and need no database.
OFFLINE = DATABASE_URL=postgresql://nobody@127.0.0.1:9/none SWITCHGEAR_SECRET_KEY=no-secret-only-for-offline-commands-0000

export PYTHON

.SILENT:
.PHONY: e2e soak up venv venv-dev test check bench screenshots
.DEFAULT_GOAL := up

up:
	$(INSTALL) --up requirements.lock && exec $(PY) -m controlplane.local

venv:
	$(INSTALL) requirements.lock

venv-dev:
	$(INSTALL) requirements-dev.lock

# Test runners side by side import the same modules and the product is started as many processes:
# where the environment forbids bytecode, each would compile all of it (a third of a runner's start).
PYTEST = PYTHONDONTWRITEBYTECODE= $(PY) -m pytest

# What needs no whole product; `e2e` starts the product as real processes, again and again, and runs
# the cases that take a browser of their own.
test: venv-dev
	$(PYTEST) -n $(RUNNERS) --dist loadfile --no-loadscope-reorder -m "not e2e" $(ARGS)

e2e: venv-dev
	$(PYTEST) -m e2e $(ARGS)
	$(PYTEST) tests/cases/test_cases.py --cases tests/e2e/cases

check: venv-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports
	$(OFFLINE) $(PY) -W ignore manage.py makemigrations --check --dry-run
	$(VENV)/bin/djade --check $$(find templates -name '*.html')
	$(VENV)/bin/oxlint --deny-warnings dashboard/static

bench: venv-dev
	$(PY) -m tests.bench $(if $(ONLY),--only $(ONLY))

# Everything is killed -9 under load, then the books are compared (SOAK_SECONDS, SOAK_SEED, SOAK_KEEP).
soak: venv-dev
	$(PY) -m tests.soak

screenshots: venv-dev
	$(PY) -m tests.screenshots
