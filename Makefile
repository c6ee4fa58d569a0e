# `make run` starts a node and `make test` runs every test; each installs what it needs first.
# Needs Python 3.11 or newer; the tests also need Java 17 or newer (for Spark).

PYTHON ?= python3
ARGS   ?=
# processes that `make test` divides the tests among; 0 runs them in pytest's own
WORKERS ?= 2
BIN    := .venv/bin
PIP    := $(BIN)/python -m pip install --quiet --no-build-isolation
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs
TYPED  := $(wildcard app migrations tests benchmarks)
LOCK   := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links \
	--no-emit-package curlew-client $(ARGS)

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run serve migrate health venv test test-fast test-long test-crash test-cluster test-one-node test-conformance check check-types check-others format bench demo cluster openapi settings messages ui-shots docs docs-serve lock sbom clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: .venv/run.stamp ## start a node on 127.0.0.1:8710 with its data in ./data
	mkdir -p -m 700 data
	$(BIN)/curlew dev $(ARGS)

serve: .venv/run.stamp ## start a production node; it migrates its database first
	$(BIN)/curlew serve --migrate $(ARGS)

migrate: .venv/run.stamp ## bring the metadata database to the newest schema
	$(BIN)/curlew migrate $(ARGS)

health: ## ask the node on this machine whether it is alive
	$(BIN)/python -m app.health_check

test: .venv/test.stamp ## run all tests; ARGS="-k name" narrows, WORKERS=0 stays in one process
	tests/install_servers.sh
	@# where nothing has written bytecode, each process would compile the app and its libraries anew
	$(BIN)/python -m compileall -q app migrations spark_connector/src clients/python/src tests/support
	$(BIN)/python -m compileall -qq .venv/lib || true
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -p tests.support.side_by_side -n $(WORKERS) -m "not fresh" $(ARGS)

test-long: .venv/test.stamp ## the sweeps that `make test` shortens, at full length, and a fresh environment
	tests/install_servers.sh
	CURLEW_TESTS_AT_LENGTH=1 $(BIN)/python -m pytest -p tests.support.side_by_side -n $(WORKERS) \
		tests/crash tests/property/test_simulated_disk.py \
		tests/acceptance/test_pages_on_a_cluster.py \
		spark_connector/tests/test_fresh_environment.py $(ARGS)

test-fast: .venv/test.stamp ## what a change needs before a commit: no sockets, under 3 minutes
	$(BIN)/python -m pytest -q -p tests.support.side_by_side -n $(WORKERS) \
		tests/unit tests/contract/test_openapi_document.py $(ARGS)

check: .venv/test.stamp ## lint, format, types, import contracts, tidiness, fresh OpenAPI and settings, pages
	@# types take about as long as all else, on one core each
	$(MAKE) --no-print-directory --jobs 2 --output-sync=target check-types check-others

check-types: .venv/test.stamp
	$(BIN)/mypy $(TYPED)
	cd spark_connector && ../$(BIN)/mypy
	cd clients/python && ../../$(BIN)/mypy

check-others: .venv/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python clients/python/make_blocking.py --check
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/unit/test_tidy.py tests/unit/test_requirements.py
	mkdir -p build
	$(BIN)/curlew openapi > build/openapi.json
	diff -u openapi/openapi.json build/openapi.json
	$(BIN)/curlew settings > build/settings.md
	diff -u docs/running/settings.md build/settings.md
	$(MKDOCS) build --strict --quiet

format: .venv/test.stamp ## let ruff fix and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test-crash: .venv/test.stamp ## kill, damage and cut power at length; figures to docs/promises.md
	tests/install_servers.sh
	$(BIN)/python -m tests.crash.sweeps.sweep --write docs/promises.md $(ARGS)

test-cluster: .venv/test.stamp ## random faults against three replicas, half an hour, as root; figures to docs/promises.md
	tests/install_servers.sh
	$(BIN)/python -m tests.crash.nemesis.run --write docs/promises.md $(ARGS)

test-one-node: .venv/test.stamp ## compare a cluster with a lone node by random programs; SEEDS=1-30
	CURLEW_PROGRAM_SEEDS=$(or $(SEEDS),1-30) $(BIN)/python -m pytest \
		tests/acceptance/test_cluster_is_one_node.py $(ARGS)

test-conformance: .venv/test.stamp ## hold a node to the OpenAPI document at length; EXAMPLES=500
	CURLEW_SCHEMATHESIS_EXAMPLES=$(or $(EXAMPLES),200) $(BIN)/python -m pytest \
		tests/contract/test_schemathesis.py $(ARGS)

bench: .venv/test.stamp ## measure against the ceilings of this machine; ARGS=--large for 10 GiB
	$(BIN)/python -m benchmarks $(ARGS)

bench-spark: .venv/test.stamp ## measure the Spark connector, some minutes
	$(BIN)/python -m benchmarks.spark $(ARGS)

cluster: .venv/test.stamp ## run a PostgreSQL and three nodes of three shards (REPLICAS=3: of one shard), and print lines to paste
	$(BIN)/python -m tests.support.cluster.local_cluster $(REPLICAS)

demo: .venv/demo.stamp ## send a year of flights through Curlew and Spark
	PYTHONPATH=spark_connector/examples $(BIN)/python -m flights $(ARGS)

openapi: .venv/run.stamp ## write openapi/openapi.json anew
	mkdir -p build
	$(BIN)/curlew openapi > build/openapi.json
	mv build/openapi.json openapi/openapi.json

settings: .venv/run.stamp ## write docs/running/settings.md anew
	mkdir -p build
	$(BIN)/curlew settings > build/settings.md
	mv build/settings.md docs/running/settings.md

ui-shots: .venv/test.stamp ## take a picture of every page, in both themes and two widths, to build/screenshots
	$(BIN)/python -m pytest -q tests/ui/test_every_page.py -k "whole or empty" $(ARGS)

messages: .venv/test.stamp ## bring the translations of the pages up to date with their texts
	$(BIN)/python -m tests.support.translations.ui_messages

docs: .venv/test.stamp ## build the pages of docs/ into build/site
	$(MKDOCS) build --strict --quiet

docs-serve: .venv/test.stamp ## show the pages on http://127.0.0.1:8711 while they are written
	$(MKDOCS) serve --strict --dev-addr 127.0.0.1:8711

lock: .venv/test.stamp ## pin requirements/*.txt anew; ARGS=--upgrade takes newer versions
	$(LOCK) -o requirements/build.txt requirements/build.in
	$(LOCK) -o requirements/run.txt -c requirements/build.txt pyproject.toml
	$(LOCK) -o requirements/demo.txt -c requirements/build.txt -c requirements/run.txt \
		pyproject.toml spark_connector/pyproject.toml requirements/demo.in
	$(LOCK) -o requirements/test.txt -c requirements/build.txt -c requirements/demo.txt \
		pyproject.toml spark_connector/pyproject.toml requirements/demo.in requirements/test.in
	$(LOCK) -o requirements/bench.txt -c requirements/test.txt requirements/bench.in

venv: .venv/run.stamp ## make .venv with what a node needs

sbom: .venv/test.stamp ## list what a node is made of in build/sbom.json (CycloneDX)
	mkdir -p build
	$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --mc-type application \
		--output-reproducible --of JSON -o build/sbom.json requirements/run.txt

clean: ## remove what can be made again (data/ stays)
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# --- the environment: one virtual environment in four steps, each stamped when it is done

.venv/build.stamp: requirements/build.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
		"Curlew needs Python 3.11 or newer; name one: make PYTHON=python3.12 run")'
	@$(PYTHON) -c 'import ensurepip, venv' || { echo "install Debian's python3-venv"; exit 1; }
	$(PYTHON) -m venv .venv
	$(PIP) --require-hashes -r requirements/build.txt
	@touch $@

# the client comes last: it has the command, which older versions of the server had
.venv/run.stamp: .venv/build.stamp requirements/run.txt pyproject.toml clients/python/pyproject.toml
	$(PIP) --require-hashes -r requirements/run.txt
	$(PIP) --no-deps --editable .
	$(PIP) --no-deps --editable clients/python
	@touch $@

.venv/demo.stamp: .venv/run.stamp requirements/demo.txt spark_connector/pyproject.toml
	$(PIP) --require-hashes -r requirements/demo.txt
	$(PIP) --no-deps --editable spark_connector
	@touch $@

.venv/test.stamp: .venv/demo.stamp requirements/test.txt
	$(PIP) --require-hashes -r requirements/test.txt
	@touch $@
