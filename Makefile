# make demo: from an empty machine with Python 3.11 to a report page.
# make test: from an empty machine to passed tests. Both set themselves up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

# Tests on real data sets find them here; where there are none, those tests are skipped.
MILREC_TEST_DATA ?= $(abspath $(wildcard ../shared/data))
export MILREC_TEST_DATA

.PHONY: demo serve-demo test check format browser proxy ml-1m bench bench-serve soak torture clean
.PHONY: bench-cluster bench-large bench-growth bench-replicas docs

demo: $(VENV)/.installed
	$(BIN)/milrec demo --out milrec-demo

# The explorer page on a simulated catalogue, at http://127.0.0.1:8000.
serve-demo: $(VENV)/.installed
	$(BIN)/milrec serve-demo --out milrec-serve-demo

test: check browser proxy
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadgroup

check: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini tests benchmarks torture experiments tools

format: $(VENV)/.installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: coverage package sbom hooks screenshots

# The pictures in docs/pictures, from the pages of `milrec serve-demo` and the report of `milrec demo`.
screenshots: browser $(VENV)/.installed-test
	$(BIN)/python tools/screenshots.py

# The tests again, with the lines of the package that they reach; fails below the floor in pyproject.toml.
coverage: browser $(VENV)/.installed-test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --cov --cov-report=term:skip-covered

# Builds sdist and wheel into dist/, checks both, and tries the wheel in an empty environment.
package: $(VENV)/.installed-dev
	$(BIN)/python tools/package.py

# Every package that milrec needs, with its version and licence: a table, and dist/sbom.json (CycloneDX).
sbom: $(VENV)/.installed-test
	$(BIN)/python tools/sbom.py

# The documentation as a site, in build/site; a broken link, or a page that nothing leads to, fails.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "to read it: $(BIN)/python -m http.server --directory build/site, then http://127.0.0.1:8000"

# Git checks each commit from now on, as .pre-commit-config.yaml says.
hooks: $(VENV)/.installed-dev
	$(BIN)/pre-commit install

# The table of the README: make ml-1m DATA=<folder or archive of MovieLens-1M>
ml-1m: $(VENV)/.installed
	@test -n "$(DATA)" || { echo "give the path of MovieLens-1M: make ml-1m DATA=ml-1m.zip"; exit 1; }
	test -d runs/ml-1m-data || $(BIN)/milrec prepare $(DATA) --out runs/ml-1m-data
	$(BIN)/milrec experiment experiments/defaults.toml --data runs/ml-1m-data --out runs/ml-1m

# Every figure, table, page and screenshot of the docs from kept results; only docs/bench.svg and its tables take a `make bench`.
.PHONY: results pictures
pictures: results screenshots

# Every page, figure and table of the docs and the README from the results that are kept in docs/results; the tables of
# `make bench` in docs/performance.md are typed from a run.
results: $(VENV)/.installed
	$(BIN)/python experiments/keep.py --all
	$(BIN)/python -m experiments.tables
	$(BIN)/python -m experiments.peers.page
	$(BIN)/python -m benchmarks.growth --kept docs/results/scale/growth.json --out docs

# Speed and memory against rivals, about 40 minutes on two quiet cores: make bench [ML_1M=<MovieLens-1M>]
# [SETS=<folder of real data sets>]
bench: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks --out runs/bench $(if $(ML_1M),--ml-1m $(ML_1M)) $(if $(SETS),--sets $(SETS))

# The server under load and overload, about four minutes on two quiet cores.
bench-serve: $(VENV)/.installed
	$(BIN)/python -m benchmarks.serve --out runs/bench-serve
	$(BIN)/python -m benchmarks.overload --out runs/bench-serve

# Every command on clusters of 1, 2 and 5 nodes, with killed nodes and workers: the same bytes; then what Ray costs.
# About half an hour on two cores.
bench-cluster: $(VENV)/.installed-cluster
	$(BIN)/python -m benchmarks.cluster --out runs/bench-cluster
	$(BIN)/python -m benchmarks.overhead --out runs/bench-cluster
	$(BIN)/python -m benchmarks.messages --out runs/bench-cluster

# A table of 10^8 rows (2.5 GB, made here): prepared, split and fitted, with the memory of each. Ten minutes, 15 GB of disk.
bench-large: $(VENV)/.installed
	$(BIN)/python -m benchmarks.large_tables --out runs/bench-large

# Time and memory against rows, users and items, up to 10^8, 10^7 and 10^6: the figure in docs/scale.md.
bench-growth: $(VENV)/.installed
	$(BIN)/python -m benchmarks.growth --out runs/bench-growth

# Two servers behind nginx, both replaced under load. Needs nginx.
bench-replicas: $(VENV)/.installed
	$(BIN)/python -m benchmarks.replicas --out runs/bench-replicas

# Mixed load with faults, and whether the server bore it: make soak [SOAK_MINUTES=30]
SOAK_MINUTES ?= 30
soak: $(VENV)/.installed
	$(BIN)/python -m benchmarks.soak --out runs/soak --minutes $(SOAK_MINUTES)

# Damaged inputs, forged folders, kills, disk faults and hostile requests in bulk, about an hour on two cores;
# shorter: make torture TORTURE_MINUTES=5. Options of `python -m torture` go into TORTURE_OPTIONS: '--only kills --seed 7'.
torture: $(VENV)/.installed-torture
	$(BIN)/python -m torture --out runs/torture --minutes $(or $(TORTURE_MINUTES),60) $(TORTURE_OPTIONS)

# Pages are tested in a real browser, and the proxy's file by nginx: Debian's, installed if they are missing.
browser:
	@$(call install-if-missing,chromium,chromium)

proxy:
	@PATH=$$PATH:/usr/sbin; $(call install-if-missing,nginx,nginx-light)

define install-if-missing
command -v $(1) >/dev/null || { \
  SUDO=$$([ "$$(id -u)" = 0 ] || echo sudo); \
  $$SUDO apt-get update -qq && $$SUDO apt-get install -y -qq $(2) >/dev/null; }
endef

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# torch first, in its exact version, so that nothing else can pull in a larger build of it.
$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) torch==$$(sed -n 's/^torch==//p' constraints.txt)
	$(PIP) -e '.[serve]'
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(PIP) -e '.[test]'
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed-test
	$(PIP) -e '.[dev]'
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(PIP) -e '.[docs]'
	touch $@

$(VENV)/.installed-cluster: $(VENV)/.installed
	$(PIP) -e '.[cluster]'
	touch $@

$(VENV)/.installed-torture: $(VENV)/.installed
	$(PIP) -e '.[torture]'
	touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	$(PIP) -e '.[bench]'
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache milrec-demo milrec-serve-demo
