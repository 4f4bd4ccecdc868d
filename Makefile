# Two commands matter: `make demo` and `make test`. Each does everything on a fresh Debian 12 machine.
# UNITY=0 compiles each file by itself instead of in batches; BUILD=dir chooses another build directory.
BUILD ?= build
UNITY ?= 1
UNITY_ROOMS = $(if $(filter 1,$(UNITY)),all,)
JOBS ?= $(shell nproc)
SHELL := /bin/bash

.PHONY: help setup venv configure build demo test test-slow bench format docs clean

help:            ## this list
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/:/' | awk -F: '{printf "  make %-12s %s\n", $$1, $$2}'

setup venv:      ## install missing packages and the pinned wheels
	@tools/setup $(SETUP)

configure: setup
	@[ -f $(BUILD)/build.ninja ] && ! { [ "$(SETUP)" = test ] && grep -q 'REDLINE_CLANG-NOTFOUND' $(BUILD)/CMakeCache.txt; } && grep -qx 'REDLINE_UNITY_ROOMS:STRING=$(UNITY_ROOMS)' $(BUILD)/CMakeCache.txt || \
	  cmake -G Ninja -S . -B $(BUILD) -DCMAKE_BUILD_TYPE=Release -DREDLINE_UNITY_ROOMS=$(UNITY_ROOMS) > $(BUILD).configure.log 2>&1 || \
	  { tail -n 20 $(BUILD).configure.log; exit 1; }; rm -f $(BUILD).configure.log

build: configure ## build/redline and the tests
	@ninja -C $(BUILD) -j$(JOBS)

demo: configure  ## see redline work
	@ninja -C $(BUILD) -j$(JOBS) redline
	@tools/demo $(BUILD)

# What only tests need is not needed for the demo.
test test-slow format: SETUP = test
# Tests share the cores, so a thread that waits must not spin.
test test-slow: export OMP_WAIT_POLICY = passive

test: build      ## all tests that run within minutes
	@tools/slowest_files $(BUILD)
	@cd $(BUILD) && ctest --output-on-failure -j$(JOBS)

test-slow: build ## the long campaigns: kills, fuzzing, training curves, the build without unity batches
	@ninja -C $(BUILD) -j$(JOBS) fuzz_with_torch
	@cd $(BUILD) && REDLINE_SLOW=1 ctest --output-on-failure --timeout 7200
	@$(MAKE) --no-print-directory BUILD=$(BUILD)-plain UNITY=0 build

bench: build     ## measure against the peers; writes bench/results
	@ninja -C $(BUILD) -j$(JOBS) bench/all
	@bench/run $(BUILD)

format:          ## format all C++ files
	@git ls-files 'src/*.h' 'src/*.cpp' 'tests/*.h' 'tests/*.cpp' 'bench/*.h' 'bench/*.cpp' | xargs clang-format-14 -i

docs: build      ## regenerate docs/options.md, docs/metrics.md and docs/guides.md
	@tools/generate_docs $(BUILD)

clean:           ## remove the build
	@rm -rf $(BUILD) $(BUILD)-plain
