# make demo [DATA=flights|simulated|obd]   real data through the whole pipeline, then the result and the verdict
# make test [COVERAGE=--cov]              every test, and what they cover
# make check                              format, lint and types
# make fuzz [SECONDS=300]                 generated inputs at the public faces; the last line counts
# make docs                               the documentation as a site: site/index.html
# make up [PORT=4300] | make down         a local Prefect server and worker with the deployments
# PYTHON=python3.12 chooses the interpreter, VENV=folder the environment, TORCH_INDEX the index torch comes from.

PYTHON ?= python3
VENV ?= .venv
DATA ?= flights
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# PyTorch's own index offers a CPU build; a plain install from PyPI takes a CUDA build of several GB.
# Where wheels are given by PIP_FIND_LINKS, they are used instead.
ifndef PIP_FIND_LINKS
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
endif

unexport PYTHONDONTWRITEBYTECODE # each stage is a process, which would compile the project again
export DO_NOT_TRACK := 1
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export DVC_NO_ANALYTICS := 1
export GX_ANALYTICS_ENABLED := false

# uv takes a fifth of pip's time; what only pip is told of (an index in pip.conf) pip finds.
comma := ,
install = $(BIN)/uv pip install --quiet --python $(BIN)/python --native-tls --compile-bytecode \
  $(addprefix --find-links ,$(PIP_FIND_LINKS)) -c constraints.txt $(1) \
  || $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(1)

.PHONY: demo test check fuzz docs up down clean

demo: $(STAMP)
	@$(BIN)/adacalib demo $(DATA)

test: $(STAMP) # in four processes, as slow ones wait for servers and for one another
	@$(BIN)/python -m pytest -n 4 --no-loadscope-reorder $(COVERAGE)

check: $(STAMP)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

fuzz: $(STAMP)
	@$(BIN)/python -m bench.fuzz --seconds $(or $(SECONDS),300)

docs: $(STAMP)
	@$(BIN)/python docs/params.py
	@$(BIN)/mkdocs build --quiet --strict

up down: $(STAMP)
	@$(BIN)/python -m flows.local $@ $(if $(PORT),--port $(PORT))

clean:
	rm -rf $(VENV) demo .release .prefect

$(STAMP): pyproject.toml constraints.txt
	@command -v git >/dev/null || { echo "git is not installed; install it and run make again" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 14) else f"Python 3.11 to 3.13 is needed, {sys.executable} is {v[0]}.{v[1]}; choose another with make PYTHON=python3.12")'
	@$(PYTHON) -m venv $(VENV) || { echo "no virtual environment could be made; on Debian install python3-venv" >&2; exit 1; }
	@echo "installing into $(VENV) (a few minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=26" uv \
	  || { echo "pip could not be upgraded; is a package index reachable?" >&2; exit 1; }
	@$(call install,--no-deps $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) "torch>=2.9$(comma)<2.14") \
	  || { echo "torch could not be installed; set TORCH_INDEX to an index that has a CPU build" >&2; exit 1; }
	@$(call install,-e ".[dev]") || { echo "the dependencies could not be installed; is a package index reachable?" >&2; exit 1; }
	@touch $@
