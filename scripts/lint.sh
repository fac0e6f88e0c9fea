#!/usr/bin/env bash
# Clang reads what is free of torch: the lock annotations of io and swap (-Wthread-safety), then
# clang-tidy by the rules of .clang-tidy. Nothing is built; compile commands come from a configure.
#
#   scripts/lint.sh [--locks-only]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly build_dir=build-lint
jobs=$(nproc)

# CUDA's headers come with torch's wheels, a toolkit or not.
cuda_headers=$(printf '%s\n' .venv/lib/python3*/site-packages/nvidia/cu13/include | head -n 1)

echo "lint: lock annotations of io and swap" >&2
find io swap -name '*.cc' -print0 |
  xargs -0 -r -n 1 -P "$jobs" clang++ -fsyntax-only -std=c++20 -I. -isystem "$cuda_headers" \
    -DXXH_INLINE_ALL -Wall -Wextra -Wthread-safety -Werror
if [[ ${1:-} == --locks-only ]]; then
  exit 0
fi

echo "lint: clang-tidy" >&2
cmake -S . -B "$build_dir" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DMAREA_ENGINE=OFF \
  -DMAREA_TESTS=OFF >/dev/null
.venv/bin/python - "$build_dir/compile_commands.json" <<'PY' |
import json, os, sys
for entry in json.load(open(sys.argv[1])):
    path = os.path.relpath(os.path.join(entry["directory"], entry["file"]))
    if path.split(os.sep)[0] in ("io", "swap", "engine") and path.endswith(".cc"):
        print(path, end="\0")
PY
  xargs -0 -r -n 1 -P "$jobs" clang-tidy --quiet -p "$build_dir"
