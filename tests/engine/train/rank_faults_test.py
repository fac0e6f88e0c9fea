"""Ranks that are killed, stand still, do not fit together, or do not come: one sentence, no hang.

    rank_faults_test.py MAREA WORK [unittest's arguments]

Every rank is `MAREA train` with torchrun's environment, started here or by `MAREA launch`, on the
CPU or as rank_environment.py says. Whatever the fault: each process ends within the stated limit with exit status 1 (2
where it was started wrongly), says in a sentence which rank and why, and none is left.
"""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

from rank_environment import DEVICE, RAM, VRAM, free_port, rank_environment, shares_gpus

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "src"))
from command_case import RAW_FAILURES, is_gone, wait_for

MAREA, WORK = "", pathlib.Path()
# Limits in seconds. A death is known at once; one that stands still after --stall-limit of silence;
# who does not come to the meeting is given up after --rank-timeout. The rest is for ending, on a
# busy machine.
STALL_LIMIT, RANK_TIMEOUT = 10, 20
DEATH, SILENCE, MEETING = 20, STALL_LIMIT + 30, RANK_TIMEOUT + 20

GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 32, "n_layer": 2,
        "n_head": 4, "n_positions": 64, "vocab_size": 257, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
        "attn_pdrop": 0.0}
DEEPSPEED = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True},
             "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
             "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}


class FaultCase(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="faults-", dir=WORK))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "nvme").mkdir()
        letters = random.Random(0)
        (self.folder / "text.txt").write_text(
            "".join(chr(letters.randrange(97, 123)) for _ in range(20000)))
        self.write("config.json", GPT2)
        self.write("ds.json", DEEPSPEED)
        self.processes = []
        self.addCleanup(self.kill_all)
        self.port = free_port()

    def start_over(self):
        """A folder, a port and no process, as at the start."""
        self.kill_all()
        self.setUp()

    def write(self, name, value):
        (self.folder / name).write_text(json.dumps(value))

    def kill_all(self):
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.communicate()

    def words(self, *more, **changes):
        flags = {"model": "config.json", "data": "text.txt", "config": "ds.json", "output": "out",
                 "sequence-length": 32, "steps": 1000000, "seed": 1, "threads": 1, "device": DEVICE,
                 "vram": VRAM, "ram": RAM, "rank-timeout": RANK_TIMEOUT,
                 "stall-limit": STALL_LIMIT, **changes}
        return ["train", *(word for name, value in flags.items()
                           for word in (f"--{name}", str(value))), *more]

    def start(self, words, environment=None):
        process = subprocess.Popen([MAREA, *words], cwd=self.folder, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, **(environment or {})})
        self.processes.append(process)
        return process

    def start_rank(self, rank, world=2, port=None, **changes):
        return self.start(self.words(**changes), self.environment_of(rank, world, port))

    def environment_of(self, rank, world, port=None):
        """As torchrun's; a test may start a rank or a world of nonsense."""
        if isinstance(rank, int) and isinstance(world, int):
            return rank_environment(rank, world, port or self.port)
        return {**rank_environment(0, 1, port or self.port), "RANK": str(rank),
                "WORLD_SIZE": str(world)}

    def wait_until_training(self, *processes):
        def lines():
            metrics = self.folder / "out/metrics.jsonl"
            return metrics.read_text().count("\n") if metrics.exists() else 0
        wait_for(lambda: lines() >= 3 or any(p.poll() is not None for p in processes),
                 "the third step")
        for process in processes:
            if process.poll() is not None:
                self.fail(f"a rank ended with {process.returncode}: {process.communicate()[1]}")

    def finish(self, process, limit):
        """Waits for its end; what it wrote on stderr."""
        try:
            _, stderr = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            self.fail(f"still there after {limit} s")
        for raw in RAW_FAILURES:
            self.assertNotIn(raw, stderr)
        return stderr

    def check_end(self, process, limit, statuses, pattern):
        stderr = self.finish(process, limit)
        self.assertIn(process.returncode, statuses, stderr)
        sentences = re.findall(r"(?m)^(?:\[\d+\] )?marea: (?!note: |warning: )(.*)$", stderr)
        self.assertTrue(any(re.search(pattern, each) for each in sentences),
                        f"no sentence has {pattern}: {stderr}")
        return stderr

    def files_are_whole(self):
        for path in (self.folder / "out").glob("*.json"):
            json.loads(path.read_text())
        metrics = self.folder / "out/metrics.jsonl"
        for line in metrics.read_text().splitlines() if metrics.exists() else []:
            json.loads(line)


class MidRun(FaultCase):
    def start_world(self, world, **changes):
        ranks = [self.start_rank(rank, world, **changes) for rank in range(world)]
        self.wait_until_training(*ranks)
        return ranks

    def test_a_killed_rank(self):
        for killed in (0, 1, 2):
            with self.subTest(killed=killed):
                self.start_over()
                ranks = self.start_world(3)
                ranks[killed].kill()
                for rank in ranks:
                    if rank is not ranks[killed]:
                        self.check_end(rank, DEATH, (1,), rf"rank {killed}\b")
                self.files_are_whole()

    @unittest.skipIf(shares_gpus(2), "needs a GPU for each rank")
    def test_a_killed_rank_that_pages_to_nvme(self):
        nvme = {"device": "nvme", "nvme_path": "nvme"}
        self.write("ds.json", dict(DEEPSPEED, zero_optimization={
            "stage": 3, "offload_optimizer": nvme, "offload_param": nvme}))
        ranks = self.start_world(2)
        ranks[1].kill()
        self.check_end(ranks[0], DEATH, (1,), r"rank 1\b")
        self.files_are_whole()
        # What is left on NVMe is in no later run's way.
        again = self.start(["launch", "--gpus", "2", "--", *self.words(steps=2)])
        stderr = self.finish(again, 60)
        self.assertEqual(again.returncode, 0, stderr)
        self.assertEqual(os.listdir(self.folder / "nvme"), [])

    def test_a_rank_that_loses_its_drive(self):
        """What it had there is gone: it says so, and the other learns whose it was."""
        nvme = {"device": "nvme", "nvme_path": "nvme"}
        for lost in (0, 1):
            with self.subTest(lost=lost):
                self.start_over()
                self.write("ds.json", dict(DEEPSPEED, zero_optimization={
                    "stage": 3, "offload_optimizer": nvme, "offload_param": nvme}))
                ranks = self.start_world(2)
                os.truncate(self.folder / f"nvme/marea.arena.rank{lost}", 0)
                self.check_end(ranks[lost], DEATH, (1,), r"nvme\b")
                self.check_end(ranks[1 - lost], DEATH, (1,), rf"rank {lost}\b.*nvme\b")
                self.files_are_whole()

    def test_a_file_that_cannot_be_written_at_the_end(self):
        """The others have trained to the end, and some wait for all to be there."""
        for failed, name in ((0, "summary.json"), (1, "trace.rank1.json")):
            with self.subTest(failed=failed):
                self.start_over()
                (self.folder / "out" / name / "in the way").mkdir(parents=True)
                ranks = [self.start_rank(rank, 3, steps=2) for rank in range(3)]
                for number, rank in enumerate(ranks):
                    named = rf"rank {failed}\b.*{name}" if number != failed else name
                    self.check_end(rank, DEATH, (1,), named)

    def test_a_rank_that_stands_still(self):
        for stopped in (0, 1):
            with self.subTest(stopped=stopped):
                self.start_over()
                ranks = self.start_world(2)
                ranks[stopped].send_signal(signal.SIGSTOP)
                self.check_end(ranks[1 - stopped], SILENCE, (1,), rf"rank {stopped}\b")
                self.files_are_whole()

    @unittest.skipIf(shares_gpus(2), "needs a GPU for each rank")
    def test_a_launch_ends_with_its_ranks(self):
        for number, limit, cause in [(signal.SIGKILL, DEATH, r"rank 1 was killed by signal 9"),
                                     (signal.SIGSTOP, SILENCE + 35, r"rank 1\b")]:
            with self.subTest(signal=number):
                self.start_over()
                launch = self.start(["launch", "--gpus", "2", "--", *self.words()])
                self.wait_until_training(launch)
                ranks = self.ranks_of(launch)
                os.kill(ranks[1], number)
                stderr = self.check_end(launch, limit, (1,), cause)
                self.assertRegex(stderr, r"(?m)^\[0\] marea: .*rank 1\b")
                wait_for(lambda: all(is_gone(pid) for pid in ranks), "the ranks' end", 5)
                self.files_are_whole()

    @unittest.skipIf(shares_gpus(2), "needs a GPU for each rank")
    def test_an_interrupt_ends_all_after_one_step(self):
        launch = self.start(["launch", "--gpus", "2", "--", *self.words()])
        self.wait_until_training(launch)
        ranks = self.ranks_of(launch)
        launch.send_signal(signal.SIGINT)
        stderr = self.finish(launch, DEATH)
        self.assertEqual(launch.returncode, 0, stderr)
        self.assertTrue(all(is_gone(pid) for pid in ranks))
        self.files_are_whole()
        summary = json.loads((self.folder / "out/summary.json").read_text())
        self.assertTrue(summary["interrupted"])
        lines = (self.folder / "out/metrics.jsonl").read_text().splitlines()
        self.assertEqual(summary["steps"], len(lines))
        self.assertTrue((self.folder / "out/checkpoint/model.safetensors").exists())

    @staticmethod
    def ranks_of(launch):
        """Processes of its ranks, in their order."""
        path = pathlib.Path(f"/proc/{launch.pid}/task/{launch.pid}/children")
        found = {}
        for pid in path.read_text().split():
            entries = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
            found[int(dict(e.split("=", 1) for e in entries if "=" in e)["RANK"])] = int(pid)
        return [found[rank] for rank in sorted(found)]


class WrongStart(FaultCase):
    """Both ranks of a pair that does not fit together say what differs."""

    def check_pair(self, first, second, pattern):
        ranks = [self.start_rank(0, **first), self.start_rank(1, **second)]
        for rank in ranks:
            self.check_end(rank, MEETING, (2,), pattern)
        self.assertFalse((self.folder / "out/metrics.jsonl").exists())
        self.assertEqual(os.listdir(self.folder / "nvme"), [])

    def test_another_seed(self):
        self.check_pair({}, {"seed": 2}, r"rank [01]\b.*seed|seed.*rank [01]\b")

    def test_another_config(self):
        self.write("other.json", dict(DEEPSPEED, gradient_clipping=0.5))
        self.check_pair({}, {"config": "other.json"}, r"rank [01]\b")

    def test_another_batch(self):
        self.write("other.json", dict(DEEPSPEED, gradient_accumulation_steps=2))
        self.check_pair({}, {"config": "other.json"}, r"rank [01]\b")

    def test_another_stage(self):
        self.write("other.json", dict(DEEPSPEED, zero_optimization={"stage": 1}))
        self.check_pair({}, {"config": "other.json"}, r"rank [01]\b")

    def test_another_model(self):
        self.write("deeper.json", dict(GPT2, n_layer=3))
        self.check_pair({}, {"model": "deeper.json"}, r"model.*rank [01]\b|rank [01]\b.*model")

    def test_other_data(self):
        (self.folder / "other.txt").write_text("another text " * 2000)
        self.check_pair({}, {"data": "other.txt"}, r"data.*rank [01]\b|rank [01]\b.*data")

    def test_other_data_of_the_same_size(self):
        text = (self.folder / "text.txt").read_text()
        (self.folder / "other.txt").write_text(text[::-1])
        self.check_pair({}, {"data": "other.txt"}, r"rank [01]\b.*data")

    def test_other_weights_of_the_same_model(self):
        for seed in (1, 2):
            process = self.start(self.words(steps=1, seed=seed, output=f"made{seed}"))
            self.assertEqual(process.wait(timeout=60), 0)
        self.check_pair({"model": "made1/checkpoint"}, {"model": "made2/checkpoint"},
                        r"rank [01]\b.*weights")

    def test_a_config_that_one_rank_cannot_read(self):
        ranks = [self.start_rank(0), self.start_rank(1, config="nowhere.json")]
        self.check_end(ranks[1], MEETING, (2,), "nowhere.json")
        self.check_end(ranks[0], MEETING, (1, 2), r"rank 1\b")

    def test_started_twice(self):
        ranks = [self.start_rank(rank, world=2) for rank in (0, 1, 1)]
        # One of the two comes too late or both are refused; whoever is, is told.
        wait_for(lambda: any(rank.poll() is not None for rank in ranks[1:]), "a refusal", MEETING)
        refused = next(rank for rank in ranks[1:] if rank.poll() is not None)
        self.check_end(refused, 1, (1, 2), r"rank 1\b")

    def test_another_world_size(self):
        ranks = [self.start_rank(0, world=2), self.start_rank(1, world=3)]
        for rank in ranks:
            self.check_end(rank, MEETING, (1, 2), r"(?i)world.?size|ranks?\b.*\b[23]\b")

    @unittest.skipUnless(DEVICE == "cuda", "of GPUs")
    def test_two_ranks_on_one_gpu(self):
        ranks = [self.start(self.words(), {**self.environment_of(rank, 2),
                                           "CUDA_VISIBLE_DEVICES": "0", "NCCL_HOSTID": "here"})
                 for rank in range(2)]
        for rank in ranks:
            self.check_end(rank, MEETING, (2,), r"rank 0 and rank 1\b.* have the same GPU")

    @unittest.skipUnless(DEVICE == "cuda", "of GPUs")
    def test_one_rank_on_the_cpu(self):
        self.check_pair({}, {"device": "cpu"}, r"rank 1\b.*device.*: cpu, not cuda")

    def test_variables_without_sense(self):
        for rank, world in ((2, 2), (-1, 2), ("x", 2), (0, 0), (0, "two")):
            with self.subTest(rank=rank, world=world):
                process = self.start_rank(rank, world)
                self.check_end(process, DEATH, (2,), "RANK|WORLD_SIZE")


class Meeting(FaultCase):
    def test_a_rank_that_does_not_come(self):
        for alone, missing in ((0, 1), (1, 0)):
            with self.subTest(missing=missing):
                self.start_over()
                rank = self.start_rank(alone)
                self.check_end(rank, MEETING, (1,), rf"rank {missing}\b|MASTER_ADDR|127\.0\.0\.1")

    def test_a_port_that_is_taken(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            ranks = [self.start_rank(rank, port=port) for rank in (0, 1)]
            self.check_end(ranks[0], MEETING, (1, 2), rf"\b{port}\b")
            self.check_end(ranks[1], MEETING, (1, 2), rf"\b{port}\b|rank 0\b")

    def test_an_address_that_no_one_has(self):
        process = self.start(self.words(), {
            "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "no-such-host.invalid", "MASTER_PORT": str(self.port)})
        self.check_end(process, MEETING, (1, 2), r"no-such-host\.invalid")


def main():
    global MAREA, WORK
    MAREA, WORK = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    WORK.mkdir(parents=True, exist_ok=True)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)


if __name__ == "__main__":
    main()
