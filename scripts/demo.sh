#!/usr/bin/env bash
# Trains a GPT-2-small-like byte model on the source of Python's standard library, with budgets so
# small that most of its state pages through a file in the build folder. Arguments go on to
# `marea train`, e.g. scripts/demo.sh --steps 3.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=build/demo
mkdir -p "$out/nvme"
if [[ ! -s $out/stdlib.txt ]]; then
  .venv/bin/python - "$out/stdlib.txt" <<'PY'
"""Joins the standard library's modules, in the order of their paths, into one text."""
import pathlib, sys, sysconfig

library = pathlib.Path(sysconfig.get_paths()["stdlib"])
skipped = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3"}
with open(sys.argv[1] + ".partial", "wb") as text:
    for path in sorted(library.rglob("*.py")):
        if skipped.isdisjoint(path.relative_to(library).parts):
            text.write(path.read_bytes().decode("utf-8", "replace").encode() + b"\n")
pathlib.Path(sys.argv[1] + ".partial").rename(sys.argv[1])
PY
fi

# The demo's own flags, each of which gives way to one that the user wrote.
defaults=(--steps 12 --sequence-length 128 --vram 288MiB --ram 960MiB)
flags=()
for ((i = 0; i < ${#defaults[@]}; i += 2)); do
  name=${defaults[i]}
  given=" $* "
  [[ $name == --steps ]] && given=${given//--epochs/--steps}
  [[ $given == *" $name "* || $given == *" $name="* ]] || flags+=("$name" "${defaults[i + 1]}")
done
exec build/marea train --model configs/gpt2-byte --data "$out/stdlib.txt" \
  --config configs/demo.json --output "$out/run" --device cpu --nvme "$out/nvme" \
  "${flags[@]}" "$@"
