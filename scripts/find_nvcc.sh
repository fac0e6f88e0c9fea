#!/usr/bin/env bash
# Prints the path of a CUDA compiler that fits torch's CUDA 13, or nothing when there is none:
# PATH first, then /usr/local/cuda, then the one that setup brought from PyPI.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
shopt -s nullglob

for nvcc in "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc \
  "$PWD"/.venv/lib/python3*/site-packages/nvidia/cu13/bin/nvcc; do
  if [[ -x $nvcc && $("$nvcc" --version 2>/dev/null) == *"release 13."* ]]; then
    echo "$nvcc"
    exit 0
  fi
done
