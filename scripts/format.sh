#!/usr/bin/env bash
# Formats every tracked C++ and CUDA source; with --check, changes nothing and fails on a difference.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mode=(-i)
if [[ ${1:-} == --check ]]; then
  mode=(--dry-run -Werror)
fi
git ls-files -z -- '*.h' '*.cc' '*.cu' '*.cuh' |
  xargs -0 -r .venv/bin/clang-format --style=file "${mode[@]}"
