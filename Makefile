# Each target does all it needs on a fresh machine: it makes .venv and installs into it.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-fast lint format bench differential verify-random web-load docs-generated docs docs-serve package clean

demo: $(VENV)/.base
	$(BIN)/meshwright plan deepseek-v3 --gpus 256xH100
	$(BIN)/meshwright plan llama3-70b --gpus 64xH100

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadgroup

test-fast: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not engine and not browser and not slurm and not site and not package"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev
	for script in accuracy layout_ranking memory_accuracy search_speed expert_recipes; do $(BIN)/python benchmarks/$$script.py; done

differential: $(VENV)/.dev
	$(BIN)/python benchmarks/differential.py

verify-random: $(VENV)/.dev
	$(BIN)/python benchmarks/verify_random.py --plans 30

web-load: $(VENV)/.dev
	$(BIN)/python benchmarks/web_load.py

docs-generated: $(VENV)/.base
	$(BIN)/python tools/generate_docs.py
	$(BIN)/python tools/update_contract.py
	$(BIN)/python tools/generate_reference.py
	$(BIN)/python tools/generate_accuracy.py
	$(BIN)/python tools/draw_docs.py
	$(BIN)/python tools/refresh_readme.py
	$(BIN)/python tools/refresh_docs.py

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

package: $(VENV)/.dev
	$(BIN)/python -m build

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e ".[dev,verify]"
	@touch $@ $(VENV)/.base

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
