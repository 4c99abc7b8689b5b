# Every target makes the virtual environment .venv and installs into it what it needs (wheels: another
# one, in ~/.cache). Wanted from the machine: Python 3.10 or newer, a C compiler, and a package registry
# that pip can reach.

PYTHON ?= python3
# What is installed and tested: these sources, or PACKAGE=dist/NAME.whl.
PACKAGE ?= .
DIST ?= dist
VENV := .venv
# Kept between clones: where zig lies anew it compiles its libraries anew, which takes minutes.
TOOLS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pyresolve-wheels
BIN := $(VENV)/bin
SOURCES := pyproject.toml CMakeLists.txt README.md \
	$(shell find native pyresolve -type f -not -name '*.pyc')
C_FILES := $(shell find native tests -name '*.[ch]' -not -name '_native.*')

FAST_TESTS := tests/test_environ.py tests/test_overrides.py tests/test_imports.py tests/disk \
	tests/pick/test_decide.py tests/check/test_line.py tests/native

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast test-beside test-ray test-systems check asan wheels bench bench-ray \
	messages clean

help: ## show this text
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.cli ## pick a hook of the real torch_memory_saver and say what is true of it here
	@echo "installing torch_memory_saver 0.0.10 and a CUDA 13 runtime into build/demo ..."
	@$(BIN)/pip install --quiet --upgrade --no-deps --target build/demo \
		torch_memory_saver==0.0.10 'nvidia-cuda-runtime==13.*'
	@PYTHONPATH=build/demo $(BIN)/pyresolve doctor || test $$? -eq 3  # 3: UNKNOWN, no driver here

test: $(VENV)/.test ## run the whole test suite on the installed package
	@$(MAKE) --no-print-directory --jobs=2 --keep-going test-beside test-ray
	@$(BIN)/pytest -q -m serial --ignore tests/ray

test-beside: $(VENV)/.test  # what bears other tests beside it
	@$(BIN)/pytest -q -n auto --dist worksteal -m 'not serial' --ignore tests/ray

test-ray: $(VENV)/.test  # in a process of their own, since Ray stays in it; they mostly wait
	@$(BIN)/pytest -q tests/ray

test-fast: $(VENV)/.test ## run the tests that start hardly any process, in seconds
	@$(BIN)/pytest -q -n auto --dist worksteal $(FAST_TESTS)

test-systems: $(VENV)/.test wheels ## try the wheel on the oldest and the newest Debian (as root; minutes)
	@PYTHON=$(BIN)/python sh tests/packaging/systems.sh

check: $(VENV)/.check test ## run the linters and type checker, then the tests
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/clang-format --dry-run -Werror $(C_FILES)

asan: $(VENV)/.test ## run the native code under AddressSanitizer, UBSan and the fuzzers
	@PYTHON=$(BIN)/python sh tests/native/asan.sh

wheels: $(TOOLS)/.installed ## build the wheels and the sdist of a release into dist/
	@PYTHON=$(TOOLS)/bin/python sh packaging/make_wheels.sh $(DIST)

bench: $(VENV)/.test ## measure what a probe costs here (BENCH: options of pyresolve bench)
	@$(BIN)/python tests/bench.py $(BENCH)

bench-ray: $(VENV)/.test ## measure what it adds to the start of a Ray worker
	@$(BIN)/python tests/bench_ray.py

messages: $(VENV)/.test ## print what a user reads in each reported case, and write docs/reports.md
	@$(BIN)/pytest tests/reports -q --messages --table docs/reports.md

clean: ## remove everything that was made here
	rm -rf $(VENV) build $(DIST) .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.%: $(SOURCES)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing pyresolve with its extra '$*' into $(VENV) ..."
	@$(BIN)/pip install --quiet "$(PACKAGE)[$*]"
	@touch $@

$(TOOLS)/.installed: packaging/requirements.txt
	@test -x $(TOOLS)/bin/python || $(PYTHON) -m venv $(TOOLS)
	@echo "installing what builds the wheels into $(TOOLS) ..."
	@$(TOOLS)/bin/pip install --quiet --requirement packaging/requirements.txt
	@touch $@
