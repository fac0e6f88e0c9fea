#!/usr/bin/env bash
# marea's I/O beside fio, DeepSpeed's ds_io and plain pread/pwrite: in one sitting, on one folder,
# in turns, so that what the drive does at other times cannot be mistaken for a difference.
#
#   bench/io_peers.sh FOLDER [ROUNDS]          5 rounds; prints the medians as one table
#
# A round is one run of each peer, all with direct I/O, requests of 1 MiB and files of SIZE_MIB:
#   marea    `marea bench`: io_uring, registered buffers, DEPTH (32) requests in flight
#   fio      io_uring, fixed buffers, registered files, the same depth and warm-up; FIO names the
#            program. Its buffers are in huge pages, as marea's are, where the machine has reserved
#            them (sysctl vm.nr_hugepages=64), which is said. Its file is new in each round, as
#            marea's is: what lies behind a virtual drive may know an old one.
#   ds_io    DeepSpeed's own benchmark (libaio), the same depth, 8 threads, where PYTHON (python3)
#            can import deepspeed; its operator is compiled at first use and wants libaio's headers
#            (CPATH, LIBRARY_PATH, LD_LIBRARY_PATH) and ninja. It has no mixed stream, and its
#            processor time is not told apart from its start.
#   threads  pread and pwrite in as many threads as cores (`marea bench --io threads`)
# A peer that is missing is left out, and that is said.
#
# SIZE_MIB (2048), RUN_SECONDS (5) of each figure, MAREA (build/marea). Needs twice SIZE_MIB on the
# drive, or three times with ds_io, which holds SIZE_MIB of RAM too. Run it where nothing else runs.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fail() {
  echo "io_peers: $1" >&2
  exit 2
}

folder=${1:-}
rounds=${2:-5}
[[ -d $folder ]] || fail "'$folder' is no folder: name one on the drive to measure"
[[ $rounds =~ ^[1-9][0-9]*$ ]] || fail "ROUNDS $rounds: write a whole number above 0"
marea=${MAREA:-$here/../build/marea}
[[ -x $marea ]] || fail "$marea is missing: run make build, or name it in MAREA"
python=${PYTHON:-python3}
fio=$(command -v "${FIO:-fio}" || true)
bytes=$((${SIZE_MIB:-2048} << 20))
seconds=${RUN_SECONDS:-5}
depth=${DEPTH:-32}
block=$((1 << 20))

work=$(mktemp -d "$folder/io-peers-XXXXXX")
trap 'rm -rf "$work"' EXIT
figures=$work/figures

say() { echo "io_peers: $*" >&2; }

# take PEER COMMAND...: runs it; io_peers.py turns what it prints into lines of figures.
take() {
  local peer=$1
  shift
  if ! "$@" >"$work/out" 2>"$work/err"; then
    tail -n 5 "$work/err" "$work/out" >&2
    fail "$peer failed: $*"
  fi
  "$python" "$here/io_peers.py" read "$peer" "$work/out" | tee -a "$figures" >&2
}

run_marea() {
  take "$1" "$marea" bench --nvme "$work" --size "$bytes" --block-size "$block" \
    --seconds "$seconds" --workload read --workload write --workload mixed --json "${@:2}"
}

# The warm-up is that of `marea bench`: a fifth, at most a second.
ramp_ms=$("$python" -c "print(round(min(1, 0.2 * $seconds) * 1000))")
fio_job=(--name=peer --filename="$work/fio" --size="$bytes" --bs="$block" --iodepth="$depth"
  --ioengine=io_uring --direct=1 --output-format=json)
huge_pages() {
  local free kib
  free=$(awk '/HugePages_Free/ {print $2}' /proc/meminfo)
  kib=$(awk '/Hugepagesize/ {print $2}' /proc/meminfo)
  ((free * kib * 1024 >= 2 * block * depth))
}
run_fio() {
  local kind
  rm -f "$work/fio"
  "$fio" "${fio_job[@]}" --rw=write --refill_buffers --end_fsync=1 >"$work/out" 2>&1 ||
    fail "fio cannot lay out its file: $(tail -n 3 "$work/out")"
  for kind in read write rw; do
    take fio "$fio" "${fio_job[@]}" --rw=$kind --fixedbufs=1 --registerfiles=1 --time_based=1 \
      --runtime="${seconds}s" --ramp_time="${ramp_ms}ms" --scramble_buffers=0 \
      --allow_file_create=0 "${fio_memory[@]}"
  done
}

# ds_io repeats the whole file: as often as fills the time at 2 GB/s.
loops=$("$python" -c "print(max(1, round($seconds * 2e9 / $bytes)))")
run_ds_io() {
  local kind
  for kind in --read ""; do
    take ds_io "$python" -m deepspeed.nvme.test_ds_aio --folder "$work" --io_size "$bytes" \
      --block_size "$block" --queue_depth "$depth" --io_parallel 8 --loops "$loops" $kind
  done
}

peers=(marea threads)
fio_memory=()
if [[ -n $fio ]]; then
  peers+=(fio)
  if huge_pages; then fio_memory=(--iomem=mmaphuge); fi
  say "$("$fio" --version), its buffers in ${fio_memory[*]:-ordinary pages}"
else
  say "fio is left out: '${FIO:-fio}' is not there (apt-get install fio, or name it in FIO)"
fi
if "$python" -c "from deepspeed.ops.op_builder import AsyncIOBuilder as B; B().load()" \
  >"$work/out" 2>&1; then
  peers+=(ds_io)
else
  say "ds_io is left out: $python cannot load DeepSpeed's async_io: $(tail -n 1 "$work/out")"
fi

for ((round = 1; round <= rounds; ++round)); do
  for peer in "${peers[@]}"; do
    say "round $round of $rounds: $peer"
    case $peer in
      marea) run_marea marea --queue-depth "$depth" ;;
      threads) run_marea threads --queue-depth "$(nproc)" --io threads ;;
      fio) run_fio ;;
      ds_io) run_ds_io ;;
    esac
  done
done
"$python" "$here/io_peers.py" table "$figures" "${peers[@]}"
