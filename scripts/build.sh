#!/usr/bin/env bash
# Configures and builds the release tree in build/; build/marea is the program.
#
#   scripts/build.sh [--cuda auto|on|off] [CMAKE_ARGUMENT]...
#
# auto builds the CUDA part where a CUDA compiler is found.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cuda=auto
if [[ ${1:-} == --cuda ]]; then
  cuda=$2
  shift 2
fi
with_cuda=OFF
if [[ $cuda != off ]]; then
  nvcc=$(scripts/find_nvcc.sh)
  if [[ -n $nvcc ]]; then
    with_cuda=ON
    export CUDACXX=$nvcc
  elif [[ $cuda == on ]]; then
    echo "build: no CUDA compiler: run make setup MAREA_CUDA=on" >&2
    exit 2
  fi
fi
cmake --preset release -DMAREA_CUDA=$with_cuda "$@"
cmake --build --preset release ${JOBS:+--parallel "$JOBS"}
