# One bare command each. Stamps make the second run quick: an environment is built again only when a lock file
# or pyproject.toml has changed.
PYTHON ?= $(shell .ci/python)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
INSTALL := $(BIN)/python .ci/install.py
FOLDERS := $(filter-out __%,$(notdir $(patsubst %/,%,$(wildcard src/odradek/*/))))
# What pip does to a wheel: without it each start compiles hundreds of modules where Python may not write its caches.
COMPILE := $(BIN)/python -m compileall -q -j 0 $(FOLDERS)
# Python keeps bytecode, even if the environment forbids it: else each pytest compiles all tests, for half a minute.
export PYTHONDONTWRITEBYTECODE :=
# Not each test that was skipped: tests/harness/skips.py sums them up.
PYTEST := $(BIN)/python -m pytest -rfE
# One more than processors: tests also wait, for clients and timeouts. With more, Spark waits too long for Python.
JOBS ?= $(shell expr $$(nproc) + 1)
ARGS ?=
USERS ?= 50
MINUTES ?= 1
PROCESSES ?= 1
SHAPE ?= steady
WEB ?=

.DEFAULT_GOAL := help
.PHONY: help install run cluster demo test test-rest test-all test-tools class-archives test-long chaos conformance lint format typecheck bench profile locust docs picture lock wheel release clean

help:  ## list these commands
	@sed -n 's/^\([a-z-]*\):.*## /  make \1 \t/p' Makefile | expand -t 20

install: $(VENV)/.installed  ## set up .venv with everything a broker needs; leaves .venv/bin/odradek

run: install  ## start a broker on 127.0.0.1:9092 with its data in ./data; Ctrl-C stops it
	@exec $(BIN)/odradek start $(ARGS)

cluster: install  ## start ZooKeeper and three brokers on 127.0.0.1 from config/; Ctrl-C stops them
	@exec bin/odradek-cluster.sh

demo: $(VENV)/.tested  ## send a year of flights through the pipeline to a picture and a checked table, in ODRADEK_DEMO_DIR or demo-report/
	@exec $(BIN)/python -m odradek.demo $(ARGS)

QUICK := not slow and (smoke or not live)

test: $(VENV)/.tested  ## set up and run the quick tests: of those that start programs, one of each kind (ARGS='-k name' picks some)
	$(PYTEST) -n $(JOBS) --dist loadfile -m "not long and $(QUICK)" $(ARGS)

test-rest: $(VENV)/.tested  ## the tests that `make test` leaves out, but not the exhaustive ones
	$(PYTEST) -n $(JOBS) --dist loadfile -m "not long and not ($(QUICK))" $(ARGS)

test-all: $(VENV)/.tested  ## both
	$(PYTEST) -n $(JOBS) --dist loadfile -m "not long" $(ARGS)

test-tools:  ## fetch the jars that some tests and the bench need: Apache Kafka, Spark's connector, HDFS, a schema registry (to .cache or ODRADEK_TEST_CACHE)
	tests/tools/kafka_jars.sh 0.8.2.2 3.9.1 4.1.0
	tests/tools/maven_jars.sh
	tests/tools/registry.sh

class-archives: $(VENV)/.tested  ## archive the classes of Spark, ZooKeeper and Kafka, which then start in half the CPU time in tests
	$(BIN)/python -m tests.tools.class_archives

test-long: $(VENV)/.tested  ## the exhaustive runs, which both leave out; writes tests/LONG.md (ARGS=--rest goes on where a run or its file ended)
	$(PYTEST) -n $(JOBS) --dist loadfile -m long --report tests/LONG.md $(ARGS)

chaos: $(VENV)/.tested  ## run a cluster under load with random faults and check it (MINUTES=10 SEED=7); adds a row to tests/CHAOS.md
	$(BIN)/python -m tests.cluster.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(ARGS)

conformance: $(VENV)/.tested  ## run client suites of other projects in the folder SUITES; writes tests/CONFORMANCE.md
	$(BIN)/python -m tests.conformance $(or $(SUITES),$(error say SUITES=FOLDER)) $(ARGS)

lint: $(VENV)/.tested typecheck  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.tested  ## format the code with ruff and apply its fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

typecheck: $(VENV)/.tested
	$(BIN)/mypy -p odradek -p tests

bench: $(VENV)/.tested  ## measure and compare with Kafka and RabbitMQ (ARGS=--quick: short; ARGS='--rows batch1'); writes loadtest/RESULTS.md
	@$(COMPILE)
	$(BIN)/python -m odradek.loadtest.bench $(ARGS)

profile: $(VENV)/.tested  ## profile Odradek's processes under one load of the bench (ROW=batch1)
	$(BIN)/python -m odradek.loadtest.profile $(or $(ROW),batch1) $(ARGS)

locust: $(VENV)/.tested  ## run locust users against a separate broker and check for lost records (USERS=200 MINUTES=2 PROCESSES=2 SHAPE=spike WEB=8089)
	$(BIN)/python -m odradek.loadtest.swarm --users $(USERS) --minutes $(MINUTES) --processes $(PROCESSES) \
		--shape $(SHAPE) $(if $(WEB),--web $(WEB)) $(ARGS)

docs: $(VENV)/.installed  ## write the tables of APIs, settings and states in docs/ from the code
	$(BIN)/python -m tests.tools.api_table
	$(BIN)/python -m tests.tools.config_reference
	$(BIN)/python -m tests.tools.state_diagrams

picture: $(VENV)/.tested  ## draw docs/console.png and docs/top.png in Chromium, docs/dashboard.png from Prometheus' answers, by their tests
	ODRADEK_TEST_PICTURES=docs $(PYTEST) tests/broker/exporter tests/commands/top/test_picture.py -k picture

wheel: $(VENV)/.installed  ## build dist/odradek-*.whl
	$(PIP) wheel --no-deps --no-build-isolation --wheel-dir dist .

release:  ## build and check what is released of the last commit: dist/ gets sdist, wheel, bill of materials and licences (ARGS=--draft before its date)
	.ci/release $(ARGS) $(PYTHON)

lock:  ## write the lock files from the newest releases that pyproject.toml allows
	.ci/lock $(PYTHON)

clean:  ## remove the environment and all build results; keep ./data and ./.cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.installed: requirements.lock requirements-uv.lock pyproject.toml
	@.ci/prerequisites $(PYTHON)
	$(PYTHON) -m venv --clear $(VENV)
	$(INSTALL) --requirement requirements.lock
	PYTHONWARNINGS=ignore $(INSTALL) --no-deps --no-build-isolation --editable .
	@$(COMPILE)
	@touch $@

$(VENV)/.tested: $(VENV)/.installed requirements-test.lock requirements-demo.lock
	$(INSTALL) --requirement requirements-test.lock
	$(INSTALL) --no-deps --no-build-isolation --requirement requirements-demo.lock
	@touch $@
