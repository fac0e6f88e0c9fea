#!/usr/bin/env bash
# How `marea train` scales from one GPU to N: equal tokens for each GPU, in one sitting.
#
#   bench/gpu_ranks.sh N CASE...
#
# A CASE is gpu_train.sh's, e.g. "llama-3b ds_gpu_ram --vram 24GiB --ram 110GiB" (--ram is the node's,
# --vram a GPU's). Each is trained on one GPU, on N, and on N without peer-to-peer access
# (NCCL_P2P_DISABLE=1); a line gives tokens a second, the efficiency beside N times one GPU, and how
# long compute waited for the ranks' collectives. Then the all-gather alone, as marea bench measures
# it. MAREA, WORK, STEPS and LD_LIBRARY_PATH are as for gpu_train.sh.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export MAREA=${MAREA:-$here/build/marea} WORK=${WORK:-$(mktemp -d)}
gpus=$1
shift

# train GPUS CASE: gpu_train.sh's lines, and its tokens a second in $rate.
train() {
  local lines
  lines=$(GPUS=$1 "$here/bench/gpu_train.sh" "$2")
  echo "$lines"
  rate=$(sed -nE 's/^step .* ([0-9]+) tokens\/s.*/\1/p' <<<"$lines")
  if [[ -z $rate ]]; then
    echo "no step was measured" >&2
    exit 1
  fi
}

for case in "$@"; do
  echo "##### $case: 1 GPU"
  train 1 "$case"
  one=$rate
  for p2p in 0 1; do
    echo "##### $case: $gpus GPUs, NCCL_P2P_DISABLE=$p2p"
    NCCL_P2P_DISABLE=$p2p train "$gpus" "$case"
    python3 -c 'import sys; one, many, n = map(int, sys.argv[1:])
print(f"efficiency {many / (n * one):.3f}: {many} tokens/s on {n} GPUs, {one} on one")' \
      "$one" "$rate" "$gpus"
  done
done

for p2p in 0 1; do
  echo "##### all-gather, $gpus GPUs, NCCL_P2P_DISABLE=$p2p"
  NCCL_P2P_DISABLE=$p2p "$MAREA" launch --gpus "$gpus" -- bench --all --seconds 2 2>/dev/null |
    grep all-gather
done
