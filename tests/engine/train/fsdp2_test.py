"""Fifty steps at ZeRO stage 3 on two ranks beside PyTorch's FSDP2 on the same weights and data.

    fsdp2_test.py MAREA [--marea-ranks N] CASE...

Both sides compute in fp32 on the CPU, or on GPUs as rank_environment.py says. FSDP2 (`fully_shard`
over Gloo or NCCL) shards each block and the root, and sums gradients over ranks and micro-batches as
the loss weights its tokens: every pass ends in a short step, so that the ranks' shares differ.
MAREA's ranks share the same global batch; with --marea-ranks 1 it takes it alone.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import torch.distributed
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import parity_test
from parity_test import BETAS, CLIPPING, DECAY, EPSILON, LENGTH, MICRO_BATCH, STEPS
from rank_environment import DEVICE, free_port, rank_environment, shares_gpus

RANKS = 2
GLOBAL_BATCH = MICRO_BATCH * parity_test.ROUNDS
LOSS_LIMIT, NORM_LIMIT, WEIGHT_LIMIT = 1e-4, 1e-3, 1e-3
CASES = {"gpt2": parity_test.gpt2, "llama": parity_test.llama,
         "gpt2_untied": lambda: parity_test.gpt2(tie_word_embeddings=False),
         "llama_tied": lambda: parity_test.llama(tie_word_embeddings=True)}


def blocks_of(model):
    return model.transformer.h if model.config.model_type == "gpt2" else model.model.layers


def shard(model):
    mesh = init_device_mesh(DEVICE, (RANKS,))
    for block in blocks_of(model):
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for module in [model, *blocks_of(model)]:
        # The loss is divided by the step's tokens already: gradients are summed, not averaged.
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)  # Gloo knows no other


def rounds_of(samples, rank):
    """This rank's micro-batches of a step: sample numbers, or None for a row without weight."""
    per_round = RANKS * MICRO_BATCH
    padded = samples + [None] * (-len(samples) % per_round)
    return [padded[at + rank * MICRO_BATCH:at + (rank + 1) * MICRO_BATCH]
            for at in range(0, len(padded), per_round)]


def train_rank(model, tokens, rank):
    """What rank 0 sees of each step: the loss over all ranks, and the gradient's norm."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, betas=BETAS, eps=EPSILON,
                                  weight_decay=DECAY, foreach=False)
    lines = []
    for step in range(STEPS):
        samples = parity_test.step_samples(step)
        rounds = rounds_of(samples, rank)
        loss_sum = torch.zeros((), device=DEVICE)
        for number, numbers in enumerate(rounds):
            model.set_requires_gradient_sync(number == len(rounds) - 1)
            rows = torch.stack([tokens[(s or 0) * LENGTH:(s or 0) * LENGTH + LENGTH + 1]
                                for s in numbers])
            weights = torch.tensor([[0.0 if s is None else 1.0] for s in numbers], device=DEVICE)
            logits = model(input_ids=rows[:, :-1], use_cache=False).logits.float()
            losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), rows[:, 1:],
                                                       reduction="none")
            loss = (losses * weights).sum() / (len(samples) * LENGTH)
            loss.backward()
            loss_sum += loss.detach()
        torch.distributed.all_reduce(loss_sum)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIPPING).full_tensor()
        optimizer.param_groups[0]["lr"] = parity_test.learning_rate(step)
        optimizer.step()
        optimizer.zero_grad()
        lines.append((loss_sum.item(), norm.item()))
    return lines


def rank_main(folder):
    """One FSDP2 rank, a process of its own, started with torchrun's environment."""
    torch.set_num_threads(1)
    if DEVICE == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
    rank = torch.distributed.get_rank()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder / "model", attn_implementation="eager", dtype=torch.float32).to(DEVICE)
    model.train()
    shard(model)
    tokens = numpy.fromfile(folder / "tokens.bin", dtype=numpy.uint16).astype(numpy.int64)
    lines = train_rank(model, torch.from_numpy(tokens).to(DEVICE), rank)
    weights = {name: value.full_tensor().cpu() for name, value in model.named_parameters()}
    if rank == 0:
        torch.save({"lines": lines, "weights": weights}, folder / "fsdp2.pt")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def train_fsdp2(folder):
    port = free_port()
    ranks = [subprocess.Popen([sys.executable, __file__, "--fsdp2-rank", str(folder)],
                              env={**os.environ, **rank_environment(rank, RANKS, port)})
             for rank in range(RANKS)]
    try:
        statuses = [process.wait(timeout=300) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    if any(statuses):
        sys.exit(f"FSDP2's ranks ended with {statuses}")
    return torch.load(folder / "fsdp2.pt")


def train_marea(marea, folder, ranks):
    config = parity_test.deepspeed_config("fp32", True, folder)
    del config["gradient_accumulation_steps"]
    (folder / "ds.json").write_text(json.dumps(dict(config, train_batch_size=GLOBAL_BATCH)))
    run = subprocess.run(
        [marea, "launch", "--ranks", str(ranks), "--", "train", "--model", folder / "model",
         "--data", folder / "tokens.bin", "--config", folder / "ds.json", "--output",
         folder / "out", "--sequence-length", str(LENGTH), "--steps", str(STEPS), "--seed",
         str(parity_test.SEED), "--threads", "1", "--device", DEVICE],
        capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"marea launch: exit {run.returncode}\n{run.stderr}")
    lines = [json.loads(line) for line in (folder / "out/metrics.jsonl").read_text().splitlines()]
    return lines, json.loads((folder / "out/summary.json").read_text())


def check_case(marea, case, ranks, checks):
    with tempfile.TemporaryDirectory(dir=".", prefix="fsdp2-") as name:
        folder = pathlib.Path(name).resolve()
        parity_test.make_model(CASES[case]()).save_pretrained(folder / "model")
        parity_test.make_tokens().tofile(folder / "tokens.bin")
        ours, summary = train_marea(marea, folder, ranks)
        theirs = train_fsdp2(folder)
        checks.truth(f"{case} has {ranks} ranks", summary["world_size"] == ranks)
        checks.truth(f"{case} ran {STEPS} steps", len(ours) == len(theirs["lines"]) == STEPS)
        pairs = list(zip(ours, theirs["lines"]))
        checks.limit(f"{case} loss, relative",
                     max(abs(line["loss"] / loss - 1) for line, (loss, _) in pairs), LOSS_LIMIT)
        checks.limit(f"{case} gradient norm, relative",
                     max(abs(line["grad_norm"] / norm - 1) for line, (_, norm) in pairs),
                     NORM_LIMIT)
        first, last = pairs[0][1][0], pairs[-1][1][0]
        checks.truth(f"{case} learns: {first:.4f} to {last:.4f}", last < first - 0.5)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(folder / "out/checkpoint",
                                                                   dtype=torch.float32)
        worst = 0.0
        for name, value in loaded.named_parameters():
            keep = parity_test.invariant(name, value)
            worst = max(worst, (value - theirs["weights"][name])[keep].abs().max().item())
        checks.limit(f"{case} final weights, absolute", worst, WEIGHT_LIMIT)


def main():
    transformers.utils.logging.disable_progress_bar()
    parser = argparse.ArgumentParser()
    parser.add_argument("--marea-ranks", type=int, default=RANKS)
    parser.add_argument("--fsdp2-rank", type=pathlib.Path)
    parser.add_argument("marea", nargs="?")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    words = parser.parse_intermixed_args()
    if words.fsdp2_rank:
        rank_main(words.fsdp2_rank)
        return
    if shares_gpus(RANKS):
        sys.exit(f"FSDP2's {RANKS} ranks need a GPU each")
    checks = parity_test.Checks()
    for case in words.cases:
        check_case(words.marea, case, words.marea_ranks, checks)
    if checks.failures or not words.cases:
        sys.exit(f"{checks.failures} comparisons failed, {len(words.cases)} cases")


if __name__ == "__main__":
    main()
