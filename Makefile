# Thin: each target calls CMake or one script. `make help` lists what there is.
.DEFAULT_GOAL := help
.PHONY: help setup build demo test bench format lint clean

# auto: build the CUDA part if a CUDA compiler is found; on: install one from PyPI if there is none.
MAREA_CUDA ?= auto
# Tests that run at the same time.
TEST_JOBS ?= 2
# What follows the demo's own arguments, e.g. make demo DEMO_ARGS="--steps 3".
DEMO_ARGS ?=

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile

setup:  ## Install what is missing: packages (as root), .venv
	@scripts/setup.sh --cuda $(MAREA_CUDA)

build: setup  ## Build the program into build/marea
	@scripts/build.sh --cuda $(MAREA_CUDA) -DMAREA_BENCH=OFF

demo: build  ## Train a model larger than its budgets, on the CPU
	@scripts/demo.sh $(DEMO_ARGS)

test: build  ## Build and pass every test
	@ctest --test-dir build --output-on-failure --no-tests=error --parallel $(TEST_JOBS)

bench: setup  ## Build and run the micro-benchmarks
	@scripts/build.sh --cuda $(MAREA_CUDA) -DMAREA_BENCH=ON
	@set -e; for bench in build/bench/*_bench; do echo "== $$bench"; $$bench; done

format: setup  ## Format every tracked source
	@scripts/format.sh

lint:  ## Lock annotations and clang-tidy on what is free of torch
	@scripts/setup.sh --cuda $(MAREA_CUDA) --lint
	@scripts/lint.sh

clean:  ## Remove the build folders (.venv stays)
	rm -rf build build-asan build-tsan build-debug build-lint
