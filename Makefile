# The one entry: `make help`. Needs Python 3.11+, git and make; everything else is pinned in requirements/ and goes to .venv.

VENV ?= .venv
ARGS ?=
# Of each property in a nightly run; tests with a budget of their own (broken variants, tiny histories) keep it.
EXAMPLES ?= 2000
BIN := $(abspath $(VENV))/bin
# One file stays in one worker: the blocks of a document share a namespace. Files begin in the order of conftest.py, where
# the longest come first: by itself xdist begins with those of most tests, and ends with the searches, which are few.
XDIST ?= --numprocesses=auto --maxprocesses=8 --dist=loadfile --no-loadscope-reorder
# Each of them starts a JVM. Small jobs are planned by one thread, so a session keeps hardly more than one core busy.
SPARK_XDIST ?= --numprocesses=auto --maxprocesses=2 --dist=loadfile --no-loadscope-reorder

DEV := $(VENV)/.dev-installed
SPARK := $(VENV)/.spark-installed
CONNECT := $(VENV)/.connect-installed
OLDEST := $(VENV)/spark-oldest
SUBJECTS := $(VENV)/.subjects-installed
KAFKA := $(VENV)/.kafka-installed
SITE := $(VENV)/.site-installed

# Loopback only: without it Spark looks this machine's name up, which fails in many containers.
SPARK_ENV = JAVA_HOME="$$(cat $(VENV)/java-home)" PYSPARK_PYTHON="$(BIN)/python" PYSPARK_DRIVER_PYTHON="$(BIN)/python" \
	SPARK_LOCAL_IP=127.0.0.1 SPARK_LOCAL_HOSTNAME=localhost
# A module on another Spark: $(call ON,where it is installed) MODULE ...
ON = PYTHONPATH=src $(subst $(BIN)/python,$(abspath $(1))/bin/python,$(SPARK_ENV)) "$(1)/bin/python" -m
PIP_INSTALL = "$(BIN)/python" -m pip install --quiet --disable-pip-version-check
COMPILE = "$(BIN)/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command "make lock" $(ARGS)

# The compiled build, unpacked; the file is as new as what lies beside it.
COMPILED := build/compiled/.built
HAS_COMPILER = "$(BIN)/python" -c "from hatch_build import check_compiler; check_compiler()"
AGAINST_COMPILED = PYTHONPATH="$(abspath build/compiled)" KEYSHARED_COMPILED=1 "$(BIN)/python" -m pytest $(XDIST)
ORACLES = tests/properties/kit $(patsubst %,tests/properties/test_%.py,more_attacks cursor_oracle leases_oracle \
	draintracker_oracle pending_acks_oracle)
# Tests of what is not compiled, and knows nothing of it.
ELSEWHERE = $(addprefix --ignore=tests/,properties tools test_benchmarks.py)

# Thousands of examples of one property may take longer than a hang in the tests of a change.
NIGHT = --hypothesis-profile=nightly -o faulthandler_timeout=0

# Another Spark or Python on the machine must not leak in; and what is not written has to be compiled by each process.
unexport SPARK_HOME PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE
export PYTHON
export PIP_NO_INPUT := 1
nightly: export EXAMPLES := $(EXAMPLES)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r target text; do \
		printf '%-16s %s\n' "$$target" "$$text"; done

.PHONY: install
install: $(SPARK) java ## make .venv with everything in it (the other targets do so themselves)

$(VENV)/bin/python:
	@tools/make_venv.sh $(VENV)

# pip first, on its own: what Debian ships cannot reuse wheels it has built when hashes are demanded.
$(DEV): requirements/pip.txt requirements/dev.txt pyproject.toml | $(VENV)/bin/python
	@echo "installing requirements/dev.txt" >&2
	@$(PIP_INSTALL) --require-hashes -r requirements/pip.txt
	@$(PIP_INSTALL) --require-hashes -r requirements/dev.txt
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(SPARK): requirements/spark.txt | $(DEV)
	@echo "installing requirements/spark.txt (pyspark is 456 MB: the first time takes minutes)" >&2
	@$(PIP_INSTALL) --require-hashes -r requirements/spark.txt
	@touch $@

# PySpark 3.5 runs on Python 3.11 and on no later one.
$(OLDEST)/.installed: $(VENV)/%/.installed: requirements/pip.txt requirements/%.txt
	@PYTHON=python3.11 tools/make_venv.sh $(@D)
	@echo "installing requirements/$*.txt (pyspark is 317 MB or more: the first time takes minutes)" >&2
	@"$(@D)/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/pip.txt
	@"$(@D)/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/$*.txt
	@touch $@

$(CONNECT): requirements/connect.txt | $(SPARK)
	@$(PIP_INSTALL) --require-hashes -r requirements/connect.txt
	@touch $@

$(SUBJECTS): requirements/subjects.txt | $(DEV)
	@$(PIP_INSTALL) --require-hashes -r requirements/subjects.txt
	@touch $@

$(KAFKA): requirements/kafka.txt | $(DEV)
	@$(PIP_INSTALL) --require-hashes -r requirements/kafka.txt
	@touch $@

$(SITE): requirements/site.txt | $(DEV)
	@$(PIP_INSTALL) --require-hashes -r requirements/site.txt
	@touch $@

.PHONY: servers
servers: $(SUBJECTS) ## find or fetch the servers of real subjects and examples (Redis, PostgreSQL, NATS, RabbitMQ, tansu)
	@"$(BIN)/python" tools/find_servers.py

.PHONY: java
java: | $(VENV)/bin/python
	@"$(BIN)/python" tools/find_java.py $(VENV)

.PHONY: test
test: test-core test-spark ## the whole test suite: the core, then Spark

.PHONY: test-core
test-core: test-units test-properties ## the core's tests; no Spark, no Java

.PHONY: test-units
test-units: $(DEV) ## examples, vectors and documents, with 100 % branch coverage
	"$(BIN)/python" -m pytest $(XDIST) --ignore=tests/properties --cov --cov-report=term $(ARGS)

# Apart, because tracing makes Hypothesis ten times as slow; the units reach every branch without it.
.PHONY: test-properties
test-properties: $(DEV) ## oracles, state machines and broken variants
	"$(BIN)/python" -m pytest $(XDIST) tests/properties $(ARGS)

.PHONY: test-spark
test-spark: $(DEV) $(SPARK) java ## the Spark tests, two processes at most, no coverage
	$(SPARK_ENV) "$(BIN)/python" -m pytest $(SPARK_XDIST) -m "spark and not slow" $(ARGS)

# All jobs have to answer what they answer on the newest Spark.
.PHONY: test-spark-oldest
test-spark-oldest: $(DEV) $(SPARK) java ## the Spark jobs on the oldest Spark, 3.5, if there is a Python 3.11; part of nightly
	@if python3.11 -c "" >/dev/null 2>&1; then $(MAKE) with-oldest-spark; else echo "Spark 3.5 is not tested" >&2; fi

.PHONY: with-oldest-spark
with-oldest-spark: $(OLDEST)/.installed
	@mkdir -p build && rm -f build/answers.json
	$(SPARK_ENV) "$(BIN)/python" -m tests.spark.everywhere 'local[2]' build/answers.json
	$(call ON,$(OLDEST)) tests.spark.everywhere 'local[2]' build/answers.json

# A cluster of two workers and Spark Connect: minutes, so no part of `make test`.
.PHONY: test-cluster
test-cluster: $(DEV) $(SPARK) $(CONNECT) java ## the Spark jobs where driver and workers share nothing; part of nightly
	$(SPARK_ENV) "$(BIN)/python" -m pytest -m "spark and slow" tests/spark/test_cluster.py $(ARGS)

# A distribution of its own, with its own settings; librdkafka brings the cluster, so nothing else is needed.
.PHONY: test-kafka
test-kafka: $(DEV) $(KAFKA) ## integrations/kafka: its types, then its tests on a mock cluster; part of nightly
	cd integrations/kafka && "$(BIN)/mypy"
	cd integrations/kafka && "$(BIN)/python" -m pytest $(ARGS)

.PHONY: check
check: lint types wheel docs ## every static check

.PHONY: lint
lint: $(DEV) ## style, layers, dependencies, spelling; needs no Spark
	"$(BIN)/ruff" check
	"$(BIN)/ruff" format --check
	"$(BIN)/lint-imports"
	"$(BIN)/deptry" src
	"$(BIN)/codespell"
	"$(BIN)/towncrier" build --draft --version next >/dev/null

# Spark is installed for this: without its types every value of the adapter would pass as Any.
.PHONY: types
types: $(DEV) $(SPARK) ## mypy --strict
	"$(BIN)/mypy"

.PHONY: wheel
wheel: $(DEV) ## build the wheel and look into it
	@rm -rf build/wheel
	"$(BIN)/python" -m hatchling build --target wheel --directory build/wheel
	"$(BIN)/python" tools/check_wheel.py build/wheel

# The wheel of this platform: the hot modules compiled by mypyc, from the same sources (docs/compiled.md).
.PHONY: wheel-compiled
wheel-compiled: $(COMPILED) ## build the wheel of this platform, whose hot modules are compiled; needs a C compiler

$(COMPILED): hatch_build.py pyproject.toml $(shell find src -name '*.py') | $(DEV)
	@rm -rf build/wheel-compiled build/compiled && mkdir -p build/compiled
	KEYSHARED_COMPILE=1 "$(BIN)/python" -m hatchling build --target wheel --directory build/wheel-compiled
	@"$(BIN)/python" tools/check_wheel.py build/wheel-compiled
	@"$(BIN)/python" -m zipfile -e build/wheel-compiled/*.whl build/compiled
	@touch $@

# The tests of the sources, with the package of the wheel before them on the path. Of the properties those that compare
# with a model, and the kit: the others are for `make test-compiled-properties`, in every nightly run.
.PHONY: test-compiled
test-compiled: $(DEV) ## examples, vectors, oracles and the kit against the compiled wheel, if there is a C compiler
	@if $(HAS_COMPILER); then $(MAKE) with-compiler-units; else echo "the compiled build is not tested" >&2; fi

.PHONY: test-compiled-properties
test-compiled-properties: $(DEV) ## every property against the compiled wheel, if there is a C compiler; part of nightly
	@if $(HAS_COMPILER); then $(MAKE) with-compiler-properties; else echo "the compiled build is not tested" >&2; fi

.PHONY: with-compiler-units
with-compiler-units: $(COMPILED)
	$(AGAINST_COMPILED) $(ELSEWHERE) $(ARGS)
	$(AGAINST_COMPILED) $(ORACLES) $(ARGS)

.PHONY: with-compiler-properties
with-compiler-properties: $(COMPILED)
	$(AGAINST_COMPILED) tests/properties $(ARGS)

# Strict: a link or a name that leads nowhere is an error. Nothing is fetched while it builds, or when it is read.
.PHONY: docs
docs: $(SITE) ## build the site into build/site: tutorial, how-tos, concepts, and the reference from the docstrings
	@"$(BIN)/python" tools/stage_docs.py
	@"$(BIN)/zensical" build --strict

.PHONY: sdist
sdist: $(DEV) ## build the source distribution, and run its tests from the tarball; ARGS="tests/test_window.py" runs some
	@rm -rf build/sdist
	"$(BIN)/python" -m hatchling build --target sdist --directory build/sdist
	@mkdir build/sdist/unpacked && tar xzf build/sdist/*.tar.gz -C build/sdist/unpacked --strip-components=1
	cd build/sdist/unpacked && PYTHONPATH=src "$(BIN)/python" -m pytest $(XDIST) $(ARGS)

.PHONY: matrix
matrix: $(DEV) ## the core's tests on every Python that is here, and with the lowest and the newest dependencies
	@"$(BIN)/python" tools/matrix.py $(ARGS)

.PHONY: release-check
release-check: $(DEV) ## what is still missing before a release
	@"$(BIN)/python" tools/release_check.py

.PHONY: format
format: $(DEV) ## write what `make lint` would ask for
	"$(BIN)/ruff" check --fix
	"$(BIN)/ruff" format

.PHONY: bench
bench: $(DEV) ## benchmarks and their targets, pure and compiled; ARGS=--check fails on a missed one, ARGS=--help shows more
	@if $(HAS_COMPILER); then $(MAKE) with-compiler-bench; else "$(BIN)/python" -m benchmarks $(ARGS); fi

.PHONY: with-compiler-bench
with-compiler-bench: $(COMPILED)
	@"$(BIN)/python" -m benchmarks --compiled build/compiled $(ARGS)

.PHONY: bench-spark
bench-spark: $(DEV) $(SPARK) java ## what columns and simulations cost on Spark; ARGS="--repeats 1 --check" measures each once
	@$(SPARK_ENV) "$(BIN)/python" -m benchmarks.bench_spark_columns $(ARGS)
	@$(SPARK_ENV) "$(BIN)/python" -m benchmarks.bench_spark_jobs $(ARGS)

.PHONY: scale
scale: $(DEV) $(SPARK) java ## how the Spark jobs grow to 100,000,000 rows: an hour; ARGS="--rows 1000000 10000000 --folder /big"
	@$(SPARK_ENV) "$(BIN)/python" -m benchmarks.bench_scale $(ARGS)

.PHONY: bench-transports
bench-transports: $(DEV) $(KAFKA) ## Kafka with many workers against loops, lanes and rivals on one mock cluster; ARGS="--quick a"
	@"$(BIN)/python" -m benchmarks.bench_transports $(ARGS)

# ARGS may select tests of one half only: pytest's 5, nothing selected, is an error only if both halves say so.
.PHONY: nightly
nightly: $(DEV) $(SPARK) $(CONNECT) $(KAFKA) java servers ## the same tests with EXAMPLES=2000 each, the slow ones, and real subjects
	@echo "nightly: $(EXAMPLES) examples of each property (EXAMPLES=10000 for a weekend)"
	$(MAKE) test-kafka ARGS='-m "slow or not slow"'
	"$(BIN)/python" -m pytest $(XDIST) -m "not spark" $(NIGHT) $(ARGS); \
	core=$$?; [ $$core -eq 0 ] || [ $$core -eq 5 ] || exit $$core; \
	$(SPARK_ENV) "$(BIN)/python" -m pytest $(SPARK_XDIST) -m spark $(NIGHT) $(ARGS); \
	spark=$$?; [ $$spark -ne 5 ] || exit $$core; exit $$spark
	$(if $(ARGS),,$(MAKE) test-spark-oldest)
	$(if $(ARGS),,$(MAKE) test-compiled test-compiled-properties matrix)
	-$(if $(ARGS),,$(MAKE) mutants)

# A sample of another seed each day. Who lives is printed and fails no night: it is looked at by a person.
.PHONY: mutants
mutants: $(DEV) ## change the core in one place at a time, for 20 minutes, and see who notices; ARGS="--modules window.py"
	"$(BIN)/python" tools/mutants.py $(ARGS)

.PHONY: gallery
gallery: $(DEV) $(KAFKA) servers ## run the systems of the gallery and write what is found; ARGS="pgmq celery" only some
	@"$(BIN)/python" tools/draw_gallery.py $(ARGS)

.PHONY: demo
demo: $(DEV) $(SPARK) java ## the Spark job over real flights; ARGS="--help" shows its options
	@$(SPARK_ENV) "$(BIN)/python" -m keyshared.spark.cli $(ARGS)

.PHONY: demo-airports
demo-airports: $(DEV) $(SPARK) java ## the same over 3,000,000 flights with hot keys, which npm fetches
	@$(SPARK_ENV) "$(BIN)/python" -m examples.airports $(ARGS)

# ARGS=--upgrade takes newer versions; without it only what pyproject.toml no longer allows changes.
.PHONY: lock
lock: $(DEV) ## write requirements/ again from pyproject.toml
	@$(PIP_INSTALL) --require-hashes -r requirements/lock.txt
	@$(COMPILE) pyproject.toml --group dev --output-file requirements/dev.txt
	@$(COMPILE) pyproject.toml --extra testing --extra demo --extra streams --constraints requirements/dev.txt \
		--output-file requirements/spark.txt
	@$(COMPILE) pyproject.toml --extra testing --extra demo --group test --group spark-oldest \
		--constraints requirements/dev.txt --output-file requirements/spark-oldest.txt
	@$(COMPILE) --group pip --output-file requirements/pip.txt
	@$(COMPILE) --group java --output-file requirements/java.txt
	@$(COMPILE) --group lock --output-file requirements/lock.txt
	@$(COMPILE) --group subjects --output-file requirements/subjects.txt
	@$(COMPILE) --group kafka --output-file requirements/kafka.txt
	@$(COMPILE) --group site --constraints requirements/dev.txt --constraints requirements/spark.txt --output-file requirements/site.txt
	@$(COMPILE) --group servers --output-file requirements/servers.txt
	@$(COMPILE) --group connect --constraints requirements/spark.txt --output-file requirements/connect.txt

.PHONY: clean
clean: ## remove everything that make has written
	rm -rf $(VENV) build dist .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache \
		.import_linter_cache spark-warehouse metastore_db derby.log demo-output
