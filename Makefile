# Every target does its own set-up: Python >= 3.11 and a C++20 compiler are all that is assumed.
# `make help` lists the targets. Stamps in .venv say what is installed already.

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install -qq
# The path is part of the name: a checkout that was moved or copied installs itself again.
STAMPS := $(VENV)/stamps$(subst /,.,$(CURDIR))
# Directories are listed too: their times change when a file is added or removed.
NATIVE := CMakeLists.txt $(shell find native -type d -o -name '*.[ch]pp')
# Files of tests side by side: most wait for processes. Two more than there are cores, since they wait.
PYTEST := $(PY) -m pytest --numprocesses=$(shell expr $$(nproc) + 2) --durations=10
CPP_FILES := $(shell find native -name '*.[ch]pp')
PYTHON_DIRS := $(wildcard distdbg tests examples benchmarks scripts docs dashboards)
export PIP_NO_INPUT := 1
# The tests start thousands of processes: what they import is compiled once, and not by each of them.
unexport PYTHONDONTWRITEBYTECODE

.NOTPARALLEL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help build demo test check format format-check lint types docs dashboards installed native-check sanitize stress fuzz torch-versions torch-programs bench promises dist clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /\1|/' \
	  | while IFS='|' read -r name text; do printf '  make %-14s %s\n' "$$name" "$$text"; done

# ------------------------------------------------------------------------------------- set-up

$(STAMPS)/venv:
	@sh scripts/venv.sh $(VENV)
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/build: $(STAMPS)/group-build pyproject.toml $(NATIVE)
	@echo "installing distdbg into $(VENV) (editable; compiles native/)"
	@$(PIP) --no-build-isolation --editable . -C cmake.define.DISTDBG_WERROR=$(if $(CI),ON,OFF)
	@touch $@

# One stamp per dependency group of pyproject.toml.
$(STAMPS)/group-%: $(STAMPS)/venv pyproject.toml
	@echo "installing the dependency group '$*' into $(VENV)"
	@$(PIP) --group $*
	@touch $@

BUILT := $(STAMPS)/build
TESTS := $(BUILT) $(STAMPS)/group-test
LINT := $(STAMPS)/group-lint
PEERS := $(STAMPS)/group-torch $(STAMPS)/group-mpi

# ------------------------------------------------------------------------------------ targets

build: $(BUILT) ## Compile native/ and install the package into .venv

demo: $(BUILT) ## A 4-rank fit, the same with one wrong rank, and a hang: report, analysis, dashboard
	@$(PY) examples/demo.py

test: $(TESTS) ## The quick tests, three to nine minutes: pure logic, and each room with real processes (ARGS= goes to pytest)
	$(PYTEST) $(ARGS)

# The tests of native/ mostly wait; what installs into .venv meanwhile does so one after the other.
check: $(STAMPS)/group-build ## All that CI checks; a skip is a failure
	@MAKE='$(MAKE)' sh scripts/side_by_side.sh native-check 'format-check lint types installed'
	@sh scripts/programs.sh
	$(PYTEST) --run-slow --no-skips $(ARGS)

format: $(LINT) ## Format Python and C++ in place
	$(VENV)/bin/ruff format $(PYTHON_DIRS)
	$(VENV)/bin/ruff check --fix-only --quiet $(PYTHON_DIRS)
	$(VENV)/bin/clang-format -i $(CPP_FILES)

format-check: $(LINT)
	$(VENV)/bin/ruff format --check $(PYTHON_DIRS)
	$(VENV)/bin/clang-format --dry-run -Werror $(CPP_FILES)

lint: $(LINT) ## Lint, and the directions of imports
	$(VENV)/bin/ruff check $(PYTHON_DIRS)
	$(VENV)/bin/lint-imports --no-cache

types: $(LINT) $(BUILT) ## mypy --strict, with a stub made from the extension
	@$(PY) -m nanobind.stubgen --quiet -m distdbg._native \
	  -p native/bindings/stub_patterns.txt -o distdbg/_native.pyi
	$(VENV)/bin/mypy --strict --explicit-package-bases distdbg tests/support

docs: $(STAMPS)/group-docs $(BUILT) ## Build the site into docs/_build/html
	@$(PY) docs/generate.py
	$(PY) -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "wrote docs/_build/html/index.html"

dashboards: $(TESTS) ## Make the JSON of Grafana's dashboards from dashboards/generate/
	$(PY) -m dashboards.generate

installed: $(TESTS) $(PEERS)

native-check: $(STAMPS)/group-build
	@sh scripts/sanitize.sh $(VENV) address,undefined

sanitize: native-check ## native/tests under ASan+UBSan, and under TSan
	@sh scripts/sanitize.sh $(VENV) thread

stress: $(TESTS) $(STAMPS)/group-torch $(STAMPS)/group-mpi ## A hundred jobs that die at random moments, many random programs, 4,096 agents, all rooms over UCX
	STRESS_JOBS=100 STRESS_PROGRAMS=120000 STRESS_TORCH_PROGRAMS=1000 STRESS_AGENTS=4096 STRESS_ARGUMENTS=100 \
	STRESS_KILLS=500 STRESS_TRANSPORTS=1 \
	  $(PY) -m pytest --run-slow \
	  tests/launch/test_run_chaos.py tests/unit/diagnose/test_random_programs.py tests/net/test_over_ucx.py \
	  tests/torch/test_differential.py tests/torch/test_differential_over_mpi.py tests/unit/hosts/test_tree_simulation.py \
	  tests/unit/runtime/test_random_arguments.py tests/ranks/test_known_calls_at_random.py \
	  tests/ranks/test_record_kills.py $(ARGS)

FUZZ_SECONDS = $(or $(patsubst --seconds=%,%,$(filter --seconds=%,$(ARGS))),60)
FUZZERS := torch api debugger tree http link

fuzz: $(BUILT) ## Feed what reads with what is a little wrong (ARGS=--seconds=600, each): records, by atheris where it installs, dumps, protocols, messages between hosts
	@$(PIP) --group fuzz || echo "atheris cannot be installed for this Python"
	$(PY) tests/fuzz/fuzz_record.py $(ARGS)
	@for name in $(FUZZERS); do $(PY) -m tests.fuzz.fuzz_$$name $(ARGS) || exit 1; done
	$(PY) tests/fuzz/legal_ops.py --ops=1000000
	for program in test_tcp_hub test_fuzz_frames; do \
	  sh scripts/sanitize.sh $(VENV) address,undefined $$program \
	    $(FUZZ_SECONDS) || exit 1; done
	sh scripts/libfuzzer.sh $(FUZZ_SECONDS)

TORCH_VERSIONS := 2.4.1 2.5.1 2.6.0 2.7.1 2.8.0 2.9.1 2.10.0 2.11.0 2.12.1 2.13.0 2.14.1

torch-versions: $(TESTS) ## The bridge with each of TORCH_VERSIONS whose wheel installs (TORCH_INDEX= says from where)
	@sh scripts/torch_versions.sh $(VENV) $(TORCH_VERSIONS)

torch-programs: $(TESTS) $(STAMPS)/group-torch ## All programs of the catalogue as torch programs on gloo, watched
	TORCH_PROGRAMS=all $(PY) -m pytest --run-slow -o faulthandler_timeout=1500 tests/torch/tap/test_catalogue.py $(ARGS)

bench: $(BUILT) $(PEERS) ## Times beside torch gloo, Open MPI and MPICH; what record and check cost
	$(PY) -m benchmarks $(ARGS)
	$(PY) -m benchmarks.overhead

promises: $(BUILT) ## What is promised in seconds: verdicts, aborts, starts, the agent; on a quiet machine
	$(PY) -m benchmarks.abort
	$(PY) -m benchmarks.verdict
	$(PY) -m benchmarks.start_jobs
	$(PY) -m benchmarks.agent

dist: $(STAMPS)/group-dist $(STAMPS)/group-test ## Wheel and sdist, tested outside the checkout
	sh scripts/dist.sh $(VENV)

clean: ## Remove all that was built or installed here
	rm -rf $(VENV) build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f distdbg/_native.pyi distdbg/_native*.so
