# Two commands do all their set-up in a private virtual environment: `make train` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SUITES_VENV ?= .venv-all
SUITES_BIN := $(SUITES_VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: train test test-long test-suites test-all test-ends lint bench faults clean

train: $(VENV)/.core
	$(BIN)/beeline train bac dmc/cartpole-swingup --repeat 8 --steps 80_000 --eval-every 20_000 --eval-episodes 5 --video

test: $(VENV)/.dev lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not suite and not long" tests

# Trainings of more than a minute; each has a small sister in `make test`.
test-long: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations 0 -m "long and not suite" tests

test-suites: $(SUITES_VENV)/.suites
	$(SUITES_BIN)/python -m pytest -n 2 --dist worksteal -m suite tests

test-all: test
	BEELINE_ALL_TASKS=1 $(MAKE) test-suites

test-ends:
	$(PYTHON) benchmarks/install_ends.py lowest highest beside

# About half an hour on two cores; ended and given again, it goes on where it was. JOURNAL keeps what was tried, and with
# PAGE=docs/reliability.md the figures are put onto that page.
JOURNAL ?= faults.jsonl
faults: $(VENV)/.dev
	$(BIN)/python tests/faults/harness.py --journal $(JOURNAL) $(if $(PAGE),--write $(PAGE))

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/mypy beeline
	$(BIN)/lint-imports

$(VENV)/.core: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[dmc]"
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[dmc,stats,tune,wandb,ray,onnx,robot,dev]"
	touch $@

# torch first: mani-skill asks for it without a bound, and the newest one brings several GB of CUDA packages.
$(SUITES_VENV)/.suites: pyproject.toml
	$(PYTHON) -m venv $(SUITES_VENV)
	$(SUITES_BIN)/python -m pip install -q torch==2.13.0
	$(SUITES_BIN)/python -m pip install -q -e ".[all,dev]"
	touch $@

clean:
	rm -rf $(VENV) $(SUITES_VENV) build dist .ends *.egg-info
