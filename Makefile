# Every target installs what it needs. Python 3.11 or newer, git and make are required.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
QUICK ?=

.PHONY: demo test test-all beam lint docs smoke clean

demo: $(VENV)/demo.stamp
	$(BIN)/python -m models.demo --out demo-output $(if $(QUICK),--quick)

# Compilation takes most of the time. Tests marked `shipped` are compiled as users' programs are, the others with
# less optimization, by those of the flags below that the installed jaxlib accepts.
test: lint
	$(call pytest,not thorough and)

# The tests of rare paths as well.
test-all: lint
	$(call pytest,)

# Collections. Apache Beam needs another version of beartype than `dev`, so it has an environment of its own.
beam: $(VENV)/beam.stamp
	PYTHONPATH=. $(VENV)/beam/bin/python -m pytest tests/models/test_beam.py

define pytest
	$(BIN)/python -m pytest -n 2 -m "$(1) shipped and not slow and not gpu" $$(grep -rl --include='*.py' mark.shipped tests)
	XLA_FLAGS="$(call known,$(HASTY))" $(BIN)/python -m pytest -n 2 --dist loadfile -m "$(1) not shipped and not slow and not gpu" tests
endef

HASTY := --xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0
known = $(shell for flag in $(1); do \
	XLA_FLAGS=$$flag $(BIN)/python -c 'import jax; jax.devices("cpu")' 2>/dev/null && echo $$flag; done)

# `dev.stamp` installs the extras that models/ imports, so that pyright sees their types. Apache Beam is not among them:
# what comes from it is unknown to pyright, and not an error. Benchmarks and examples are not checked.
lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python hmmjax models

docs: $(VENV)/docs.stamp
	$(BIN)/python -m mkdocs build --strict

# Install wheel and sdist into clean environments, one per available Python, away from the checkout.
smoke:
	$(PYTHON) tests/smoke/install.py

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer found; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

NATIVE := $(wildcard hmmjax/native/*.cc hmmjax/native/*.h)

$(VENV)/demo.stamp: pyproject.toml hatch_build.py $(NATIVE) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[vision]'
	@touch $@

$(VENV)/dev.stamp: pyproject.toml hatch_build.py $(NATIVE) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev,vision,tfds]'
	@touch $@ $(VENV)/demo.stamp

# The compiled recursions are those that `lint` installs.
$(VENV)/beam.stamp: pyproject.toml $(VENV)/dev.stamp
	$(PYTHON) -m venv $(VENV)/beam
	$(VENV)/beam/bin/python -m pip install --quiet 'apache-beam>=2.77' 'jax>=0.10' 'numpy>=2.0' 'typer>=0.15' 'rich>=13' \
		'pytest>=8' 'jaxtyping>=0.3'
	@touch $@

$(VENV)/docs.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) demo-output build dist site
