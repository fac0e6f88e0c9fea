"""Fifty steps of `marea train` beside PyTorch and Transformers, on the same weights and data.

    parity_test.py MAREA CASE...

For each CASE a small random model is saved by Transformers, trained by MAREA from its folder and by
the loop in `train_reference`, and compared step by step: loss, learning rate, gradient norm; then
the final weights, as Transformers loads them from the checkpoint. With MAREA_TEST_DEVICE=cuda both
sides compute on the GPU, and MAREA's own run on the CPU stands beside them.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers

STEPS, LENGTH, MICRO_BATCH, ROUNDS, SEED = 50, 32, 2, 4, 1234
# Seven more than a multiple of a step's eight: every pass ends in a short step with a padded row.
SAMPLES = 63
CLIPPING, BETAS, EPSILON, DECAY = 1.0, (0.9, 0.98), 1e-8, 0.1
WARMUP, RATE_LOW, RATE_HIGH = 6, 1e-4, 3e-3
DEVICE = os.environ.get("MAREA_TEST_DEVICE", "cpu")
LOSS_LIMIT = {"fp32": 1e-5 if DEVICE == "cpu" else 1e-4, "bf16": 1e-2 if DEVICE == "cpu" else 2e-2}
CPU_GPU_LOSS_LIMIT = 1e-3  # fp32
NORM_LIMIT = {"fp32": 1e-3, "bf16": 5e-2}
WEIGHT_LIMIT = {"fp32": 1e-4, "bf16": 3e-2}

GPT2 = dict(n_embd=64, n_layer=2, n_head=4, n_positions=128, vocab_size=257, initializer_range=0.1,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None)
LLAMA = dict(hidden_size=64, intermediate_size=176, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, vocab_size=257, max_position_embeddings=128,
             initializer_range=0.1, bos_token_id=None, eos_token_id=None)


def gpt2(**more):
    return transformers.GPT2Config(**GPT2, **more)


def llama(**more):
    return transformers.LlamaConfig(**LLAMA, **more)


# Configuration, precision, and whether weights and optimizer rest on NVMe.
CASES = {
    "gpt2": (lambda: gpt2(), "fp32", True),
    "gpt2_untied": (lambda: gpt2(tie_word_embeddings=False), "fp32", False),
    "gpt2_bf16": (lambda: gpt2(), "bf16", False),
    "llama": (lambda: llama(), "fp32", False),
    "llama_tied": (lambda: llama(tie_word_embeddings=True), "fp32", True),
    "llama_bf16": (lambda: llama(), "bf16", True),
}

MASK64 = (1 << 64) - 1


def mix(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)


def sample_order(samples, seed, pass_number):
    """The permutation of engine/data/data_order.h."""
    golden = 0x9E3779B97F4A7C15
    half = max(1, ((samples - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    state = mix((mix((seed + golden) & MASK64) + pass_number * golden + 1) & MASK64)
    keys = []
    for _ in range(8):
        state = (state + golden) & MASK64
        keys.append(mix(state))

    def encrypt(value):
        left, right = value >> half, value & mask
        for key in keys:
            left, right = right, left ^ (mix(right ^ key) & mask)
        return left << half | right

    order = []
    for position in range(samples):
        value = encrypt(position)
        while value >= samples:
            value = encrypt(value)
        order.append(value)
    assert sorted(order) == list(range(samples))
    return order


def step_samples(step):
    per_step = MICRO_BATCH * ROUNDS
    per_pass = -(-SAMPLES // per_step)
    first = step % per_pass * per_step
    return sample_order(SAMPLES, SEED, step // per_pass)[first:first + per_step]


def learning_rate(step):
    """DeepSpeed's WarmupDecayLR, which is one iteration behind the update that it serves."""
    iteration = step - 1
    if iteration < 0:
        return RATE_LOW
    if iteration < WARMUP:
        share = iteration / WARMUP
    else:
        share = max(0.0, (STEPS - iteration) / (STEPS - WARMUP))
    return RATE_LOW + (RATE_HIGH - RATE_LOW) * share


def make_tokens():
    """A noisy sequence with a rule to learn; every id of the vocabulary may occur."""
    random = numpy.random.default_rng(7)
    tokens = [0]
    for noise in random.integers(0, 257, SAMPLES * LENGTH):
        tokens.append(int(noise) if noise % 3 == 0 else (5 * tokens[-1] + 7) % 257)
    return numpy.array(tokens, dtype=numpy.uint16)


def make_model(config):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:  # norms and biases away from their exact ones and zeros
                parameter.add_(0.1 * torch.randn_like(parameter))
            parameter.copy_(parameter.bfloat16().float())  # both precisions start alike
    return model


def train_reference(master, precision, tokens):
    """Trains `master` (fp32) in place. Computes in `precision`; sums gradients in fp32."""
    master.to(DEVICE)
    if precision == "bf16":
        model = transformers.AutoModelForCausalLM.from_config(
            master.config, attn_implementation="eager").bfloat16().to(DEVICE)
    else:
        model = master
    model.train()
    parameters = list(master.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=0.0, betas=BETAS, eps=EPSILON, weight_decay=DECAY,
                                  foreach=False)
    tokens = torch.from_numpy(tokens.astype(numpy.int64)).to(DEVICE)
    lines = []
    for step in range(STEPS):
        if model is not master:
            with torch.no_grad():
                for low, full in zip(model.parameters(), parameters):
                    low.copy_(full)
        samples = step_samples(step)
        sums, loss_sum = [torch.zeros_like(p) for p in parameters], 0.0
        for at in range(0, len(samples), MICRO_BATCH):
            rows = [tokens[s * LENGTH:(s + 1) * LENGTH + 1] for s in samples[at:at + MICRO_BATCH]]
            rows = torch.stack(rows)
            logits = model(input_ids=rows[:, :-1], use_cache=False).logits.float()
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), rows[:, 1:].flatten(), reduction="sum")
            loss = loss / (len(samples) * LENGTH)
            loss_sum += loss.item()
            model.zero_grad(set_to_none=True)
            loss.backward()
            for total, parameter in zip(sums, model.parameters()):
                total.add_(parameter.grad)
        for parameter, total in zip(parameters, sums):
            parameter.grad = total
        norm = torch.nn.utils.clip_grad_norm_(parameters, CLIPPING).item()
        optimizer.param_groups[0]["lr"] = learning_rate(step)
        optimizer.step()
        lines.append((loss_sum, norm))
    master.to("cpu")
    return lines


def deepspeed_config(precision, on_nvme, folder):
    zero = {"stage": 3}
    if on_nvme:
        home = {"device": "nvme", "nvme_path": str(folder)}
        zero.update(offload_optimizer=home, offload_param=home)
    return {
        "train_micro_batch_size_per_gpu": MICRO_BATCH, "gradient_accumulation_steps": ROUNDS,
        "gradient_clipping": CLIPPING, "bf16": {"enabled": precision == "bf16"},
        "zero_optimization": zero,
        "optimizer": {"type": "AdamW", "params": {
            "lr": RATE_HIGH, "betas": BETAS, "eps": EPSILON, "weight_decay": DECAY}},
        "scheduler": {"type": "WarmupDecayLR", "params": {
            "warmup_min_lr": RATE_LOW, "warmup_max_lr": RATE_HIGH, "warmup_num_steps": WARMUP,
            "warmup_type": "linear", "total_num_steps": STEPS}},
    }


def train_marea(marea, folder, model, precision, on_nvme, tokens, device):
    model.save_pretrained(folder / "model")
    tokens.tofile(folder / "tokens.bin")
    config = deepspeed_config(precision, on_nvme, folder)
    (folder / "ds.json").write_text(json.dumps(config))
    run = subprocess.run(
        [marea, "train", "--model", folder / "model", "--data", folder / "tokens.bin", "--config",
         folder / "ds.json", "--output", folder / "out", "--sequence-length", str(LENGTH),
         "--steps", str(STEPS), "--seed", str(SEED), "--threads", "2", "--device", device],
        capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"marea train: exit {run.returncode}\n{run.stderr}")
    lines = [json.loads(line) for line in (folder / "out/metrics.jsonl").read_text().splitlines()]
    return lines, json.loads((folder / "out/summary.json").read_text())


def invariant(name, value):
    """Elements that no loss depends on: a key's bias shifts a row of scores as a whole. Its gradient
    is rounding alone, which Adam scales up to a step of full size."""
    keep = torch.ones(value.shape, dtype=torch.bool)
    if name.endswith("attn.c_attn.bias"):
        third = value.shape[0] // 3
        keep[third:2 * third] = False
    return keep


class Checks:
    def __init__(self):
        self.failures = 0

    def limit(self, name, value, limit):
        good = value <= limit
        print(f"{'ok  ' if good else 'FAIL'} {name}: {value:.3g} (limit {limit:.3g})", flush=True)
        self.failures += not good

    def truth(self, name, good):
        print(f"{'ok  ' if good else 'FAIL'} {name}", flush=True)
        self.failures += not good


def check_weights(case, precision, folder, master, checks):
    loaded, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder / "out/checkpoint", output_loading_info=True, dtype=torch.float32)
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        checks.truth(f"{case} checkpoint has no {problem}: {list(info[problem])}",
                     not info[problem])
    worst = 0.0
    theirs = dict(master.named_parameters())
    for name, ours in loaded.named_parameters():
        keep = invariant(name, ours)
        worst = max(worst, (ours - theirs[name])[keep].abs().max().item())
    checks.limit(f"{case} final weights, absolute", worst, WEIGHT_LIMIT[precision])


def check_case(marea, case, checks):
    make_config, precision, on_nvme = CASES[case]
    tokens = make_tokens()
    model = make_model(make_config())
    with tempfile.TemporaryDirectory(dir=".", prefix="parity-") as name:
        folder = pathlib.Path(name).resolve()
        if DEVICE != "cpu" and precision == "fp32":
            on_cpu, _ = train_marea(marea, folder, model, precision, on_nvme, tokens, "cpu")
        ours, summary = train_marea(marea, folder, model, precision, on_nvme, tokens, DEVICE)
        theirs = train_reference(model, precision, tokens)
        checks.truth(f"{case} ran {STEPS} steps", len(ours) == STEPS)
        nvme_bytes = summary["peaks"]["nvme_bytes"]
        checks.truth(f"{case} rests on NVMe: {nvme_bytes} bytes", (nvme_bytes > 0) == on_nvme)
        relative = [abs(line["loss"] / loss - 1) for line, (loss, _) in zip(ours, theirs)]
        checks.limit(f"{case} loss, relative", max(relative), LOSS_LIMIT[precision])
        if DEVICE != "cpu" and precision == "fp32":
            relative = [abs(line["loss"] / cpu["loss"] - 1) for line, cpu in zip(ours, on_cpu)]
            checks.limit(f"{case} loss beside the CPU's, relative", max(relative),
                         CPU_GPU_LOSS_LIMIT)
        relative = [abs(line["grad_norm"] / norm - 1) for line, (_, norm) in zip(ours, theirs)]
        checks.limit(f"{case} gradient norm, relative", max(relative), NORM_LIMIT[precision])
        rates = [abs(line["learning_rate"] / learning_rate(i) - 1) for i, line in enumerate(ours)]
        checks.limit(f"{case} learning rate, relative", max(rates), 1e-12)
        clipped = sum(norm > CLIPPING for _, norm in theirs)
        checks.truth(f"{case} clipped {clipped} steps", clipped >= STEPS // 5)
        checks.truth(f"{case} learns: {theirs[0][0]:.4f} to {theirs[-1][0]:.4f}",
                     theirs[-1][0] < theirs[0][0] - 0.5)
        check_weights(case, precision, folder, model, checks)


def main():
    marea, *cases = sys.argv[1:]
    torch.set_num_threads(2)
    checks = Checks()
    for case in cases:
        check_case(marea, case, checks)
    if checks.failures:
        sys.exit(f"{checks.failures} comparisons failed")


if __name__ == "__main__":
    main()
