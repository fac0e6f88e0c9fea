#!/usr/bin/env bash
# Builds what is free of torch under sanitizers and runs its tests.
#
#   scripts/sanitizers.sh asan-ubsan|tsan
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=${1:?usage: sanitizers.sh asan-ubsan|tsan}
case $preset in
  asan-ubsan)
    build_dir=build-asan
    targets=(all)
    tests=.
    ;;
  tsan) # where the threads are
    build_dir=build-tsan
    targets=(io_test io_allocation_test swap_test)
    tests='^(io|io_allocation|swap)_test$'
    ;;
  *)
    echo "sanitizers: unknown preset '$preset': write asan-ubsan or tsan" >&2
    exit 2
    ;;
esac
cmake --preset "$preset"
cmake --build --preset "$preset" --target "${targets[@]}" ${JOBS:+--parallel "$JOBS"}

export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
# Ten times slower here; the release build runs them all.
export MAREA_SIMULATION_PLANS=${MAREA_SIMULATION_PLANS:-500}
export TSAN_OPTIONS=${TSAN_OPTIONS:-second_deadlock_stack=1}
# ThreadSanitizer's shadow has fixed addresses, which kernels with more than 28 random bits in mmap
# (vm.mmap_rnd_bits) overlap: run without randomisation where the sandbox permits it.
run=()
if [[ $preset == tsan ]] && setarch "$(uname -m)" -R true 2>/dev/null; then
  run=(setarch "$(uname -m)" -R)
fi
"${run[@]}" ctest --test-dir "$build_dir" --tests-regex "$tests" --output-on-failure --no-tests=error \
  --parallel "${TEST_JOBS:-2}"
