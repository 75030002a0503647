# Each target sets up what it needs: on a fresh machine, `make run` or `make test` is all.
PYTHON ?= python3
PORT ?= 8000
SUITE ?= llm
BIN := .venv/bin
STAMP := .venv/.ready
# One process a core, which takes tests over from another once it has none left.
BESIDE := --numprocesses auto --maxprocesses 8 --dist worksteal

# Tests start hundreds of processes: none compiles again what another has.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run test test-contract test-faults test-postgres test-container test-browser
.PHONY: lint format bench bench-service clean

help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make .venv with everything the tests and the compiler need

$(STAMP): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or later is needed; name one with PYTHON=..." >&2; exit 3; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
		{ echo "Python's venv module is needed (Debian and Ubuntu: apt install python3-venv)" >&2; exit 3; }
	@echo "Making .venv: packages are fetched and installed, 0.9 GB on disk, which may take minutes"
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

run: $(STAMP) ## Start the service, ask it about 4096 x 4096 x 4096, stay in the foreground
	@exec $(BIN)/python -m app.demo --port $(PORT)

test: lint ## Lint, type-check and run the tests; needs no GPU
	$(BIN)/python -m pytest $(BESIDE) -m "not (alone or browser or container or contract or faults)"
	$(BIN)/python -m pytest -m alone

test-contract: $(STAMP) ## Hold thousands of answers to the OpenAPI document; takes minutes
	$(BIN)/python -m pytest -m contract -s tests/app/test_contract.py

test-faults: $(STAMP) ## The long tests of faults: the service killed 50 times
	$(BIN)/python -m pytest -m faults -s tests/app/faults

test-postgres: $(STAMP) ## The store's and the faults' tests on a PostgreSQL server, installed where missing
	$(BIN)/python -m tests.postgres --install
	WARPWRIGHT_TEST_POSTGRES=1 $(BIN)/python -m pytest $(BESIDE) -k postgresql tests/app/store tests/app/faults

test-container: $(STAMP) ## Build and start the image; for root on Debian, with buildah and debootstrap
	$(BIN)/python -m pytest -m container --timeout 1800 -s tests/container

test-browser: $(STAMP) ## The page in Chromium, installed where missing
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/browser.txt
	$(BIN)/python -m bench.browser --install
	$(BIN)/python -m pytest -m browser tests/app/test_page_in_browser.py

lint: $(STAMP) ## Ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --explicit-package-bases tests/gpu  # which nothing else looks at without a GPU

format: $(STAMP) ## Rewrite the sources in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## Time the solver over a suite (SUITE=llm, paper or a CSV file)
	$(BIN)/warpwright bench solve --suite $(SUITE)

bench-service: $(STAMP) ## Load the service with wrk; one JSON object on standard output
	@$(BIN)/python -m bench.service_load

clean: ## Remove what these targets made
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
