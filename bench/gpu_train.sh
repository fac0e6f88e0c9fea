#!/usr/bin/env bash
# Step time and memory of `marea train` on a GPU, with random weights and random tokens.
#
#   bench/gpu_train.sh CASE...
#
# A CASE is one quoted word: a model of configs/, a config of configs/ and more flags of
# `marea train`, e.g. "llama-1b ds_gpu_ram --vram 12GiB". Each runs STEPS steps (6) of 2048-token
# samples; a line gives the median of the steps after the first, and the peaks beside what was
# predicted; nvidia-smi's own count of VRAM stands beside ours. GPUS=N trains with N ranks, each on
# a GPU of its own (gpu_ranks.sh compares), and says how much of their collectives computation did
# not hide. MAREA names the program, WORK a folder on the disk that NVMe cases use. Where libraries
# of torch are not beside the program, LD_LIBRARY_PATH must name them.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
marea=${MAREA:-$here/build/marea}
work=${WORK:-$(mktemp -d)}
steps=${STEPS:-6}
gpus=${GPUS:-1}
launch=()
((gpus == 1)) || launch=(launch --gpus "$gpus" --)
mkdir -p "$work"
python3 - "$work/tokens.bin" <<'PYTHON'
import random, struct, sys
random.seed(1)
count = 2048 * 8 * 16 + 1
with open(sys.argv[1], "wb") as file:
    file.write(struct.pack(f"<{count}H", *(random.randrange(32000) for _ in range(count))))
PYTHON

for case in "$@"; do
  read -r model config flags <<<"$case"
  out=$work/out
  rm -rf "$out" "$work/nvme"
  mkdir -p "$work/nvme"
  echo "=== $case"
  nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -lms 100 >"$work/smi.txt" 2>/dev/null &
  smi=$!
  status=0
  # shellcheck disable=SC2086  # flags are words
  (cd "$work" && timeout "${CASE_LIMIT:-280}" "$marea" "${launch[@]}" train --device cuda \
    --model "$here/configs/$model/config.json" --config "$here/configs/$config.json" \
    --data "$work/tokens.bin" --sequence-length 2048 --steps "$steps" --output "$out" $flags) \
    >"$work/stdout.txt" 2>"$work/stderr.txt" || status=$?
  kill $smi 2>/dev/null || true
  wait $smi 2>/dev/null || true
  if ((status)); then
    echo "exit $status: $(tail -5 "$work/stderr.txt")"
    continue
  fi
  python3 - "$out" "$work/smi.txt" <<'PYTHON'
import json, statistics, sys
out, smi = sys.argv[1:]
lines = [json.loads(line) for line in open(out + "/metrics.jsonl")]
summary = json.load(open(out + "/summary.json"))
seconds = [line["step_seconds"] for line in lines[1:]]
gib = 2 ** 30
peaks, predicted = summary["peaks"], summary["predicted_peaks"]
used = [int(word) for word in open(smi).read().split() if word.isdigit()]
print(f"step {statistics.median(seconds):.3f} s (min {min(seconds):.3f}, first {lines[0]['step_seconds']:.2f}), "
      f"loss {lines[0]['loss']:.4f} -> {lines[-1]['loss']:.4f}, "
      f"{summary['tokens_per_step'] / statistics.median(seconds):.0f} tokens/s, bound by {summary['bound_by']}")
for tier in peaks:
    print(f"  {tier}: peak {peaks[tier] / gib:.2f} GiB, predicted {predicted[tier] / gib:.2f}, "
          f"budget {summary['budgets'][tier] / gib:.2f}")
if used:
    print(f"  nvidia-smi: {max(used) / 1024:.2f} GiB at most")
if "workspace" in summary:
    print("  workspace: " + ", ".join(f"{key} {value / gib:.3f} GiB" if "bytes" in key else f"{key} {value}"
                                      for key, value in summary["workspace"].items()))
print("  stalls (s a step): " + ", ".join(f"{lane} {value / len(lines):.3f}"
                                          for lane, value in summary["stall_seconds"].items() if value))
print("  busy (s a step): " + ", ".join(f"{lane} {value['busy_seconds'] / len(lines):.3f}"
                                        for lane, value in summary["lanes"].items() if value["op_count"]))
PYTHON
  ((gpus == 1)) || python3 "$here/bench/trace_overlap.py" "$out/trace.json" --turns 1:4 | grep comm
done
