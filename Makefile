# make run, make test: everything from a fresh checkout. See README.md.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILD_TYPE ?= Release
NATIVE := $(shell find native pyturbo shaders tests/native tests/shaders CMakeLists.txt pyproject.toml -type f \
            -not -path '*/__pycache__/*' 2>/dev/null)

.PHONY: run test build lint docs clean

run: build
	$(BIN)/python examples/matrix_product.py

test: lint
	$(BIN)/pytest -q

build: $(VENV)/built

$(VENV)/tools: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --upgrade "pip>=25.1"
	$(BIN)/pip install -q --group build --group test
	touch $@

$(VENV)/built: $(VENV)/tools $(NATIVE)
	$(BIN)/pip install --no-build-isolation -Cbuild-dir=build/release -Ccmake.build-type=$(BUILD_TYPE) \
	  -Ccmake.define.PYTURBO_TESTS=ON .
	touch $@

docs: build
	$(BIN)/python docs/make_kernels.py

lint: build
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror \
	  $$(find native shaders tests -name '*.h' -o -name '*.cpp' -o -name '*.mm' -o -name '*.metal' -o -name metal_stdlib)
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build
