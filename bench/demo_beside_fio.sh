#!/usr/bin/env bash
# The demo's disk rate beside fio's: in one sitting, on the same folder, in turns, so that what the
# drive does at other times cannot be mistaken for a difference between the two.
#
#   bench/demo_beside_fio.sh [ROUNDS [FLAG]...]     3 rounds; flags go on to `marea train`
#
# A round is one run of the demo (its whole program), then fio reading, writing, and doing both at
# once: io_uring, O_DIRECT, registered buffers, one file as large as the demo's, and the demo's own
# request size, depth and share of reads, all read from what the run leaves. fio runs for
# FIO_SECONDS (5) each. The demo's rate is bytes through the lane per second in which it had at
# least one op in flight. Prints each round and the medians. Needs build/marea and fio; run it on a
# machine that does nothing else. Where compute is slow, `--sequence-length 16` moves about the same
# bytes sooner.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rounds=${1:-3}
shift $(($# > 0))
seconds=${FIO_SECONDS:-5}
[[ -x build/marea ]] || {
  echo "demo_beside_fio: build/marea is missing: run make build" >&2
  exit 2
}
command -v fio >/dev/null || {
  echo "demo_beside_fio: fio is missing: install it (apt-get install fio) and run this again" >&2
  exit 2
}

out=build/demo-beside-fio
folder=build/demo/nvme
run=build/demo/run
rm -rf "$out"
mkdir -p "$out" "$folder"
target=$folder/fio.data
trap 'rm -f "$target"' EXIT

# fio_run ROUND NAME ARGUMENT...: one job of fio with the demo's request size and depth.
fio_run() {
  local round=$1 name=$2
  shift 2
  fio --name="$name" --filename="$target" --size="$file_bytes" --ioengine=io_uring --direct=1 \
    --fixedbufs=1 --bs="$request_bytes" --iodepth="$depth" --time_based --runtime="$seconds" \
    --overwrite=1 --end_fsync=0 --output-format=json --output="$out/$round-$name.json" "$@"
}

for ((round = 1; round <= rounds; ++round)); do
  echo "round $round of $rounds: the demo" >&2
  scripts/demo.sh "$@" >/dev/null 2>"$out/demo.log" || {
    cat "$out/demo.log" >&2
    exit 1
  }
  cp "$run/summary.json" "$out/$round-demo.json"
  # The run says how it went about it: bytes of a request, requests in flight, share of reads.
  read -r request_bytes depth read_percent file_bytes < <(
    .venv/bin/python bench/demo_beside_fio.py shape "$run"
  )
  echo "round $round of $rounds: fio, $request_bytes bytes a request, $depth in flight," \
    "$read_percent% reads, a file of $file_bytes bytes" >&2
  if [[ ! -e $target ]]; then
    fio_run 0 layout --rw=write --bs=1M --time_based=0 --runtime=0
  fi
  fio_run "$round" read --rw=read
  fio_run "$round" write --rw=write
  fio_run "$round" mixed --rw=rw --rwmixread="$read_percent"
done
.venv/bin/python bench/demo_beside_fio.py table "$out" "$rounds"
