# One word per task; the same here and in CI. Everything depends on the environment, which is quick the second time.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARCHIVE := $(VENV)/.class-archive
CODE := src workbench tests examples benchmarks docs/site
export GRETE_HOME ?= $(CURDIR)/.grete
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup demo demo-kafka demo-cluster test test-fast test-loaded test-repeated unit lint audit format docs docs-site dist image screenshots durations \
	check bench bench-kafka spark-versions versions interop fuzz-plans simulate vectors services nightly weekly clock soak lock clean

help: ## these lines
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

setup: $(STAMP) $(ARCHIVE) ## .venv with everything that is locked, and what a fresh machine lacks

$(STAMP): requirements/build.txt requirements/dev.txt pyproject.toml workbench/pyproject.toml scripts/need.sh
	bash scripts/need.sh $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/build.txt
	$(BIN)/python -m pip install --quiet --require-hashes --no-build-isolation -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e . -e workbench
	touch $@

# From which jobs start in two thirds of the time; they run without it as well. Tests have one of their own.
$(ARCHIVE): $(STAMP)
	$(BIN)/python -m grete.spark.class_archive >/dev/null 2>&1 || echo "jobs start without an archive of classes" >&2
	touch $@

demo: $(STAMP) ## two jobs over 336,776 flights
	$(BIN)/python examples/flights/demo.py

MANAGER ?= standalone
SERVICES_standalone :=
SERVICES_yarn := yarn_jars
SERVICES_kubernetes := kube_apiserver
demo-cluster: $(STAMP) ## the same on a cluster that it starts; MANAGER=standalone, yarn, or kubernetes (needs root and Go)
	SERVICES="kafka_jars spark_kafka_jars $(SERVICES_$(MANAGER))" bash scripts/services.sh
	$(BIN)/python examples/flights/demo.py --cluster $(MANAGER)

demo-kafka: $(STAMP) ## the same on a Kafka broker that it starts
	SERVICES="kafka_jars spark_kafka_jars" bash scripts/services.sh
	$(BIN)/python examples/flights/demo.py --kafka

MADE := configuration.md=grete_workbench.documents.settings commands.md=grete_workbench.documents.commands http.md=grete_workbench.documents.http json-output.md=grete_workbench.documents.outputs
lint: $(STAMP) ## ruff, mypy, import-linter, the lock, known vulnerabilities, docs that are made from code
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini tests benchmarks
	$(BIN)/lint-imports
	bash scripts/lock.sh --check
	$(BIN)/python scripts/audit.py
	for page in $(MADE); do $(BIN)/python -m $${page#*=} | diff -u docs/$${page%=*} - || exit 1; done # differs: make docs

format: $(STAMP) ## let ruff do what it can
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

docs: $(STAMP) ## regenerate what is made from code
	for page in $(MADE); do $(BIN)/python -m $${page#*=} > docs/$${page%=*}; done

docs-site: $(STAMP) ## the documentation with a reference of the Python API, as pages in build/site; a broken link fails it
	bash scripts/site.sh

# Tests run side by side, each with a limit, and leave nothing behind: `python -m tests.harness --help`.
HARNESS := $(BIN)/python -m tests.harness
TESTS ?= tests
TIMES ?= 20

unit: test-fast ## the same as test-fast

test-fast: $(STAMP) ## unit, wire and property tests, in a minute: after each edit
	$(HARNESS) --workers 2 -q -m "not nightly" tests/unit tests/wire tests/property

test: $(STAMP) ## lint and every test but the nightly ones
	$(MAKE) --no-print-directory --jobs 2 --output-sync lint services
	$(HARNESS) $(if $(CI),--again) -q -m "not nightly"

check: test ## the same as test

test-loaded: services ## every test but the nightly ones, beside 10 processes that only compute
	$(HARNESS) --beside 10 -q -m "not nightly"

test-repeated: services ## tests one after the other, many times: TESTS="FILE::TEST ..." TIMES=20
	$(HARNESS) --workers 1 --times $(TIMES) -q $(TESTS)

screenshots: $(STAMP) ## pictures of the pages, into docs/screenshots
	SERVICES=browser bash scripts/services.sh
	$(BIN)/python -m tests.support.screenshots

dist: $(STAMP) ## a release: wheel, source, what it brings (CycloneDX), of what it was made (SLSA), digests; in dist
	bash scripts/dist.sh

image: $(STAMP) ## an image with grete, PySpark and Java, by buildah, podman or docker
	bash scripts/image.sh

durations: ## what tests took in the last run: prints what computed longest, and lets the next begin with the longest
	$(BIN)/python -m tests.harness.durations

services: $(STAMP) ## what tests need besides Python and Java; where there is Go also Kubernetes, built once
	bash scripts/services.sh

nightly: lint services ## every test, campaigns in their long form
	SERVICES="kube_apiserver object_stores spark_s3_jars otel_collector helm grafana_schema dockerfile_lint kerberos newer_clients debian compose" bash scripts/services.sh
	bash scripts/site.sh
	GRETE_NIGHTLY=1 $(HARNESS) -q -m "not alone"
	GRETE_NIGHTLY=1 $(HARNESS) --workers 1 -q -m alone
	$(MAKE) --no-print-directory clock

weekly: nightly test-loaded spark-versions versions ## what nightly does, tests on a busy machine, other versions of Python and Spark, 40,000 seeds
	$(MAKE) --no-print-directory simulate SEEDS=20000 SEED=3001
	$(MAKE) --no-print-directory simulate SEEDS=20000 SEED=3001 ARGS="--embedded --frequent"

clock: services ## jobs while the machine's clock jumps an hour back and forth: sets it, so needs root and nothing beside
	GRETE_SET_CLOCK=1 $(HARNESS) --workers 1 -q -s tests/fault/test_clock.py

HOURS ?= 2
soak: services ## five jobs in one home under random faults, every output checked, HOURS=2; as root with a full disk among the faults
	$(BIN)/python -m grete_workbench.soak --hours $(HOURS) $(ARGS)

spark-versions: $(STAMP) ## tests of whole jobs on the other versions of Spark that grete runs on; fetches each, 400 MB
	bash scripts/spark_versions.sh

versions: services ## fast tests and a whole job on the other versions of Python that are on this machine
	bash scripts/python_versions.sh

bench: setup ## ratios to the same work by hand, in one run
	$(BIN)/python -m benchmarks.run

bench-curves: setup ## how the embedded default does over rates, sizes, tasks, keys and containers; pictures for docs
	$(BIN)/python -m benchmarks.curves

BENCH ?= kafka
bench-kafka: setup services ## the log on Kafka against the real Samza; BENCH=kafka_peers, kafka_latency: jobs against peers; ARGS
	SERVICES=kafka_streams bash scripts/services.sh
	@$(BIN)/python -m benchmarks.$(BENCH) $(ARGS)

interop: $(STAMP) services ## both directions with the real Samza; prints what each side read
	$(BIN)/python -m pytest -q -s tests/interop

CASES ?= 500
SEED ?= 1
fuzz-plans: $(STAMP) ## random jobs, starts, growth and moves through the real planner and ours; CASES=500 SEED=1
	SERVICES=samza_jars bash scripts/services.sh
	$(BIN)/python -m grete_workbench.plans --cases $(CASES) --seed $(SEED)

SEEDS ?= 500
simulate: $(STAMP) ## whole jobs in seeded worlds full of faults, SEEDS=500 from SEED=1 on; one alone is told whole
	$(BIN)/python -m grete_workbench.simulator --seeds $(SEEDS) --seed $(SEED) $(ARGS)

vectors: $(STAMP) ## what the real Samza wrote and computed, against ours: DIR=folder of vectors
	@test -n "$(DIR)" || { echo "say which: make vectors DIR=folder" >&2; exit 2; }
	$(BIN)/python -m grete_workbench.vectors $(DIR)

audit: $(STAMP) ## known vulnerabilities of what is locked; says so when a registry does not tell
	$(BIN)/python scripts/audit.py

lock: ## regenerate requirements/*.txt from requirements/*.in
	bash scripts/lock.sh

clean: ## forget all state of the demo; .venv stays
	rm -rf .grete
