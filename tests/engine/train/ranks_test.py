"""Training over 1 to 4 ranks: what may not change a bit, and what may change the last ones.

    ranks_test.py MAREA WORK [--quick] [unittest's arguments]

Each run is `MAREA launch --ranks W -- train ...` of a tiny model in a folder below WORK, on the CPU
or as rank_environment.py says. Runs with the same flags are made once and shared by the tests.
--quick keeps fewer world sizes and placements of the same checks.
"""

import hashlib
import itertools
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

from rank_environment import DEVICE, RAM, VRAM, free_port, rank_environment, shares_gpus

MAREA, WORK, QUICK = "", pathlib.Path(), False
SECONDS_MAX = 120  # of one run; it takes a few
LENGTH, VOCABULARY, SAMPLES = 16, 51, 64

GPT2 = dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], n_embd=32, n_layer=2, n_head=4,
            n_positions=64, vocab_size=VOCABULARY, initializer_range=0.1,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
LLAMA = dict(model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=32,
             intermediate_size=72, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, vocab_size=VOCABULARY, max_position_embeddings=64,
             rms_norm_eps=1e-5, rope_theta=10000.0, initializer_range=0.1)
# Nothing of these divides by 3, and some tensors are shorter than a rank's page.
ODD_GPT2 = dict(GPT2, n_embd=35, n_head=5)
ODD_LLAMA = dict(LLAMA, hidden_size=34, intermediate_size=71, num_attention_heads=1,
                 num_key_value_heads=1)

CPU, NVME = {"device": "cpu"}, {"device": "nvme", "nvme_path": "nvme"}
# DeepSpeed offloads optimizer states from stage 1 on, and parameters at stage 3.
PLACEMENTS = {"vram": {}, "cpu": {"offload_optimizer": CPU}, "nvme": {"offload_optimizer": NVME}}
PLACEMENTS_3 = {"vram": {}, "cpu": {"offload_optimizer": CPU, "offload_param": CPU},
                "nvme": {"offload_optimizer": NVME, "offload_param": NVME}}
STAGES = [(0, "vram", {})] + [
    (stage, name, zero) for stage in (1, 2, 3)
    for name, zero in (PLACEMENTS_3 if stage == 3 else PLACEMENTS).items()]


class Run:
    """What a run left: its lines, its summary, and the bytes of its weights."""

    def __init__(self, folder):
        self.lines = [json.loads(line)
                      for line in (folder / "out/metrics.jsonl").read_text().splitlines()]
        self.summary = json.loads((folder / "out/summary.json").read_text())
        weights = (folder / "out/checkpoint/model.safetensors").read_bytes()
        self.weights = hashlib.sha256(weights).hexdigest()

    def of(self, key):
        return [line[key] for line in self.lines]

    @property
    def bits(self):
        """What must be equal to the last bit; doubles are written so that they read back so."""
        return {"loss": self.of("loss"), "grad_norm": self.of("grad_norm"),
                "tokens": self.of("tokens"), "weights": self.weights}

    def homes(self, kind):
        """The tiers where shards of this kind rest."""
        return {tier for tier, kinds in self.summary["placement"].items() if kinds.get(kind)}


def config_of(zero, batch, precision):
    return {"bf16": {"enabled": precision == "bf16"}, "gradient_clipping": 1.0,
            "zero_optimization": zero,
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.1}}, **batch}


def write_tokens(path, samples):
    """A noisy sequence with a rule to learn, `samples` of LENGTH tokens and the last label."""
    noise = random.Random(5)
    tokens = [0]
    for _ in range(samples * LENGTH):
        tokens.append(noise.randrange(VOCABULARY) if noise.random() < 0.3
                      else (5 * tokens[-1] + 7) % VOCABULARY)
    path.write_bytes(b"".join(token.to_bytes(2, "little") for token in tokens))


finished = {}


def train(world, model, zero, batch, precision="fp32", steps=6, samples=SAMPLES):
    """The Run of these settings; they are all that it depends on."""
    config = config_of(zero, batch, precision)
    key = json.dumps([world, model, config, steps, samples])
    if key not in finished:
        finished[key] = train_anew(world, model, config, steps, samples)
    return finished[key]


def train_anew(world, model, config, steps, samples):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ranks-", dir=WORK))
    try:
        (folder / "nvme").mkdir()
        (folder / "config.json").write_text(json.dumps(model))
        (folder / "ds.json").write_text(json.dumps(config))
        write_tokens(folder / "tokens.bin", samples)
        words = ["train", "--model", "config.json", "--data", "tokens.bin", "--config", "ds.json",
                 "--output", "out", "--sequence-length", str(LENGTH), "--steps", str(steps),
                 "--seed", "11", "--threads", "1", "--device", DEVICE, "--vram", VRAM,
                 "--ram", RAM, *(["--deterministic"] if DEVICE == "cuda" else [])]
        status, stderr = start_each(world, words, folder) if shares_gpus(world) else launch(
            world, words, folder)
        if status != 0:
            raise AssertionError(f"{world} ranks, {config['zero_optimization']}: exit {status}\n"
                                 f"{stderr}")
        run = Run(folder)
        if run.summary["world_size"] != world:
            raise AssertionError(f"{world} ranks were started, and one has a world of "
                                 f"{run.summary['world_size']}")
        if (folder / "nvme").exists() and os.listdir(folder / "nvme"):
            raise AssertionError(f"left on NVMe: {os.listdir(folder / 'nvme')}")
        return run
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def launch(world, words, folder):
    process = subprocess.run([MAREA, "launch", "--ranks", str(world), "--", *words], cwd=folder,
                             capture_output=True, text=True, timeout=SECONDS_MAX)
    return process.returncode, process.stderr


def start_each(world, words, folder):
    """Ranks that share GPUs: each has an environment of its own."""
    port = free_port()
    ranks = [subprocess.Popen([MAREA, *words], cwd=folder, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, **rank_environment(rank, world, port)})
             for rank in range(world)]
    try:
        said = [rank.communicate(timeout=SECONDS_MAX)[1] for rank in ranks]
        return max(abs(rank.returncode) for rank in ranks), "\n".join(said)
    finally:
        for rank in ranks:
            rank.kill()


def relative(ours, theirs):
    return max(abs(a / b - 1) for a, b in zip(ours, theirs, strict=True))


class RanksCase(unittest.TestCase):
    def check_bits(self, run, reference):
        for name, value in run.bits.items():
            self.assertEqual(value, reference.bits[name], name)

    def check_learns(self, run):
        self.assertLess(run.of("loss")[-1], run.of("loss")[0] - 0.05)


class Stages(RanksCase):
    """Stage and placement change no bit at one world size."""

    def check_world(self, world, model, precision):
        batch = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2}
        reference = train(world, model, {"stage": 0}, batch, precision)
        self.check_learns(reference)
        stages = STAGES
        if QUICK:  # every stage in VRAM, stage 2 where it rests lowest, stage 3 everywhere
            stages = [(stage, place, zero) for stage, place, zero in STAGES
                      if place == "vram" or stage == 3 or (place == "nvme" and stage == 2)]
        for stage, place, zero in stages:
            if place == "cpu" and stage < 3 and world != 2:
                continue  # the same homes as without it
            with self.subTest(world=world, stage=stage, placement=place):
                run = train(world, model, {"stage": stage, **zero}, batch, precision)
                home = {"vram": "vram", "cpu": "ram", "nvme": "nvme"}[place]
                if DEVICE == "cpu" or stage == 3:
                    self.assertEqual(run.homes("weight"), {home if stage == 3 else "vram"})
                # An optimizer on the CPU has beside it what it need not share.
                state = "ram" if DEVICE == "cpu" and place == "vram" else home
                self.assertEqual(run.homes("moment1"), {state})
                self.check_bits(run, reference)

    @unittest.skipIf("--quick" in sys.argv, "--quick")
    def test_1_rank(self):
        self.check_world(1, GPT2, "fp32")

    def test_2_ranks(self):
        self.check_world(2, LLAMA, "bf16")

    def test_3_ranks(self):
        self.check_world(3, GPT2, "bf16")

    @unittest.skipIf("--quick" in sys.argv, "--quick")
    def test_4_ranks(self):
        self.check_world(4, LLAMA, "fp32")


class WorldSizes(RanksCase):
    def test_the_same_global_batch_over_1_2_and_4_ranks(self):
        for name, model in [("gpt2", GPT2), ("llama", LLAMA)][:1 if QUICK else 2]:
            runs = {world: train(world, model, {"stage": 3}, {
                "train_batch_size": 8, "train_micro_batch_size_per_gpu": 1}, steps=50)
                for world in (1, 2, 4)}
            self.check_learns(runs[1])
            for world in (2, 4):
                with self.subTest(model=name, world=world):
                    self.assertEqual(runs[world].of("tokens"), runs[1].of("tokens"))
                    difference = relative(runs[world].of("loss"), runs[1].of("loss"))
                    self.assertLess(difference, 1e-3)
                    # A world of its own, not a copy of one rank's run.
                    self.assertEqual(runs[world].summary["tokens_per_step"], 8 * LENGTH)

    def test_accumulation_of_1_and_8(self):
        runs = [train(2, GPT2, {"stage": 2}, {"train_micro_batch_size_per_gpu": micro,
                                              "gradient_accumulation_steps": 8 // micro})
                for micro in (8, 1)]
        self.assertEqual(runs[0].of("tokens"), runs[1].of("tokens"))
        self.assertLess(relative(runs[1].of("loss"), runs[0].of("loss")), 1e-3)
        self.assertLess(relative(runs[1].of("grad_norm"), runs[0].of("grad_norm")), 1e-3)

    def test_ranks_with_unequal_numbers_of_tokens(self):
        """19 samples in steps of 12: of the last 7, two ranks take 2 and one takes 3."""
        for stage in (3,) if QUICK else (0, 3):
            runs = [train(world, GPT2, {"stage": stage}, {
                "train_batch_size": 12, "train_micro_batch_size_per_gpu": 2}, steps=6, samples=19)
                for world in (1, 3)]
            self.assertEqual(runs[0].of("tokens"), [12 * LENGTH, 7 * LENGTH] * 3)
            self.assertEqual(runs[1].of("tokens"), runs[0].of("tokens"))
            with self.subTest(stage=stage):
                self.assertLess(relative(runs[1].of("loss"), runs[0].of("loss")), 1e-5)
                self.assertLess(relative(runs[1].of("grad_norm"), runs[0].of("grad_norm")), 1e-4)

    def test_a_step_with_fewer_samples_than_ranks(self):
        """9 samples in steps of 8: the last one belongs to one rank, the others have none."""
        runs = [train(world, LLAMA, {"stage": 3}, {
            "train_batch_size": 8, "train_micro_batch_size_per_gpu": 2}, steps=4, samples=9)
            for world in (1, 4)]
        self.assertEqual(runs[1].of("tokens"), [8 * LENGTH, LENGTH] * 2)
        self.assertLess(relative(runs[1].of("loss"), runs[0].of("loss")), 1e-5)


class Groups(RanksCase):
    """Three ranks and groups that three does not divide: padding and bucket sizes change no bit."""

    BATCH = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2}

    def check_model(self, model, changes):
        reference = train(3, model, {"stage": 0}, self.BATCH)
        alone = train(1, model, {"stage": 0}, {"train_micro_batch_size_per_gpu": 1,
                                               "gradient_accumulation_steps": 6})
        self.assertLess(relative(reference.of("loss"), alone.of("loss")), 1e-3)
        for change in changes:
            with self.subTest(change=change):
                run = train(3, model, {"stage": 3, **change}, self.BATCH)
                self.check_bits(run, reference)

    def test_odd_sizes_tied_and_untied(self):
        for model, tied in itertools.product((ODD_GPT2, ODD_LLAMA), (True, False)):
            if QUICK and tied != (model is ODD_GPT2):
                continue
            with self.subTest(model=model["model_type"], tied=tied):
                self.check_model(dict(model, tie_word_embeddings=tied), [{}])

    def test_thresholds_and_buckets(self):
        changes = [{"stage3_param_persistence_threshold": 0},
                   {"stage3_param_persistence_threshold": 1000},
                   {"stage3_param_persistence_threshold": 100000},
                   {"stage3_param_persistence_threshold": 1000000000},
                   {"reduce_bucket_size": 1, "allgather_bucket_size": 1},
                   {"reduce_bucket_size": 1024, "allgather_bucket_size": 500000000,
                    "stage3_prefetch_bucket_size": 0},
                   {"stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0,
                    "overlap_comm": False, "contiguous_gradients": False}]
        self.check_model(ODD_GPT2, changes[0:6:2] if QUICK else changes)


def main():
    global MAREA, WORK, QUICK
    words = [word for word in sys.argv[1:] if word != "--quick"]
    QUICK = len(words) < len(sys.argv) - 1
    MAREA, WORK = os.path.abspath(words[0]), pathlib.Path(words[1]).resolve()
    WORK.mkdir(parents=True, exist_ok=True)
    unittest.main(argv=[sys.argv[0], *words[2:]], verbosity=2)


if __name__ == "__main__":
    main()
