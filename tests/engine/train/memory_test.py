"""The process's peak memory, as the kernel counts it, beside what the plan promised.

    memory_test.py MAREA

Trains three mid-size models for a few steps, each in a process of its own. The peak must stay
within the prediction, and the prediction within a margin of the peak: memory that is promised and
never used is taken from the model's homes.
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

MIB = 1 << 20
MARGIN_BYTES = 256 * MIB

GPT2 = dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], n_positions=256)
LLAMA = dict(model_type="llama", architectures=["LlamaForCausalLM"], max_position_embeddings=256,
             rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False)
SHAPES = {
    "gpt2 256x6": dict(GPT2, vocab_size=257, n_embd=256, n_layer=6, n_head=8),
    "gpt2 384x4, vocabulary 20000": dict(GPT2, vocab_size=20000, n_embd=384, n_layer=4, n_head=6),
    "llama 256x6": dict(LLAMA, vocab_size=256, hidden_size=256, intermediate_size=688,
                        num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=2),
}


def peak_of(command):
    """Runs it; the peak of its resident memory by wait4, in bytes."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    errors = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"exit {process.returncode}: {errors}")
    return usage.ru_maxrss * 1024


def check_shape(marea, name, shape, folder):
    (folder / "config.json").write_text(json.dumps(shape))
    (folder / "ds.json").write_text(json.dumps({
        "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2,
        "bf16": {"enabled": True}, "gradient_clipping": 1.0}))
    letters = random.Random(0)
    (folder / "data.txt").write_text("".join(chr(letters.randrange(32, 127))
                                             for _ in range(40000)))
    ram = 1200 * MIB
    peak = peak_of([marea, "train", "--model", folder / "config.json", "--data",
                    folder / "data.txt", "--config", folder / "ds.json", "--output",
                    folder / "out", "--sequence-length", "256", "--steps", "3", "--ram", f"{ram}",
                    "--nvme", folder, "--threads", "2"])
    summary = json.loads((folder / "out/summary.json").read_text())
    predicted = summary["predicted_peaks"]["ram_bytes"]
    good = peak <= predicted <= ram and predicted - peak <= MARGIN_BYTES
    print(f"{'ok  ' if good else 'FAIL'} {name}: peak {peak / MIB:.0f} MiB, predicted "
          f"{predicted / MIB:.0f} MiB (at most {MARGIN_BYTES // MIB} MiB more), --ram "
          f"{ram // MIB} MiB", flush=True)
    return good


def main():
    good = True
    for name, shape in SHAPES.items():
        with tempfile.TemporaryDirectory(dir=".", prefix="memory-") as folder:
            good &= check_shape(sys.argv[1], name, shape, pathlib.Path(folder).resolve())
    if not good:
        sys.exit(1)


if __name__ == "__main__":
    main()
