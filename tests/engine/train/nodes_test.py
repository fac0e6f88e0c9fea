"""Ranks on two nodes, under SLURM's variables and under torchrun, against the same world of one
launch; and a network that fails between the nodes.

    VENV/bin/python nodes_test.py MAREA WORK [unittest's arguments]

A node is a network namespace with a folder of its own, so that nodes share neither addresses nor
files; a veth pair is the network. Without root the test enters a user namespace. torchrun is the
one beside the Python that runs this.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

import rank_faults_test as faults
from rank_faults_test import FaultCase, wait_for
from ranks_test import Run

TORCHRUN = pathlib.Path(sys.executable).parent / "torchrun"
ADDRESSES = ("10.77.0.1", "10.77.0.2")
# Of a run, and of one to which something happens after its third step.
STEPS, LONGER, RUN_SECONDS_MAX = 6, 60, 60
# What a rank has for ending after it has seen the fault, on a busy machine.
ENDING = 15
NVME = {"device": "nvme", "nvme_path": "nvme"}
DEEPSPEED = dict(faults.DEEPSPEED, gradient_clipping=1.0, zero_optimization={
    "stage": 3, "offload_optimizer": NVME, "offload_param": NVME})


class Network:
    """Two namespaces with a link between them; they are gone with their first process."""

    def __init__(self):
        self.holders = []
        try:
            subprocess.run(["unshare", "--net", "true"], check=True, capture_output=True, text=True)
            for _ in ADDRESSES:
                self.holders.append(subprocess.Popen(["unshare", "--net", "sleep", "600"]))
            own = os.readlink("/proc/self/ns/net")
            wait_for(lambda: all(self.namespace(holder) != own or holder.poll() is not None
                                 for holder in self.holders), "the namespaces", 10)
            self.ip(0, "link", "add", "lan", "type", "veth", "peer", "name", "lan", "netns",
                    str(self.holders[1].pid))
            for node, address in enumerate(ADDRESSES):
                self.ip(node, "address", "add", f"{address}/24", "dev", "lan")
                self.ip(node, "link", "set", "lo", "up")
                self.ip(node, "link", "set", "lan", "up")
        except (OSError, AssertionError, subprocess.SubprocessError) as error:
            self.close()
            reason = (getattr(error, "stderr", None) or str(error)).strip()
            raise unittest.SkipTest(
                f"two network namespaces and a link cannot be made here: {reason}") from error

    @staticmethod
    def namespace(holder):
        return os.readlink(f"/proc/{holder.pid}/ns/net") if holder.poll() is None else ""

    def within(self, node):
        """Words that go before a command to run it on this node."""
        return ["nsenter", f"--net=/proc/{self.holders[node].pid}/ns/net", "--"]

    def ip(self, node, *words):
        subprocess.run([*self.within(node), "ip", *words], check=True, capture_output=True,
                       text=True, timeout=10)

    def close(self):
        for holder in self.holders:
            holder.kill()
            holder.wait()


def ranks_of(launcher):
    """The processes of its ranks by their number."""
    found = {}
    for path in pathlib.Path(f"/proc/{launcher.pid}/task").glob("*/children"):
        for pid in path.read_text().split():
            entries = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
            variables = dict(entry.split("=", 1) for entry in entries if "=" in entry)
            if "RANK" in variables:
                found[int(variables["RANK"])] = int(pid)
    return found


references = {}


class NodesCase(FaultCase):
    def setUp(self):
        super().setUp()
        self.write("ds.json", DEEPSPEED)

    def start_in(self, folder, words, environment=None):
        process = subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, **(environment or {})})
        self.processes.append(process)
        return process

    def check_success(self, *processes):
        for process in processes:
            stderr = self.finish(process, RUN_SECONDS_MAX)
            self.assertEqual(process.returncode, 0, stderr)

    def check_bits(self, folder, world, steps=STEPS):
        """The run in this folder has the bits of so many ranks on one node."""
        run = Run(folder)
        self.assertEqual(run.summary["world_size"], world)
        self.assertEqual(len(run.lines), steps)
        self.assertEqual(os.listdir(folder / "nvme"), [])
        if (world, steps) not in references:
            alone = self.folder / "alone"
            self.copy_inputs(alone)
            self.check_success(self.start_in(alone, [
                faults.MAREA, "launch", "--gpus", str(world), "--", *self.words(steps=steps)]))
            references[world, steps] = Run(alone)
        for name, value in references[world, steps].bits.items():
            self.assertEqual(run.bits[name], value, name)

    def copy_inputs(self, folder):
        (folder / "nvme").mkdir(parents=True)
        for name in ("config.json", "ds.json", "text.txt"):
            shutil.copy(self.folder / name, folder)


class TwoNodes(NodesCase):
    @classmethod
    def setUpClass(cls):
        cls.network = Network()
        cls.addClassCleanup(cls.network.close)

    def setUp(self):
        super().setUp()
        self.node_folders = [self.folder / f"node{node}" for node in (0, 1)]
        for folder in self.node_folders:
            self.copy_inputs(folder)

    def start_on(self, node, words, environment=None):
        return self.start_in(self.node_folders[node], [*self.network.within(node), *words],
                             environment)

    def launch(self, node, gpus, **changes):
        return self.start_on(node, [
            faults.MAREA, "launch", "--nodes", "2", "--node-rank", str(node), "--master-addr",
            ADDRESSES[0], "--gpus", str(gpus), "--", *self.words(**changes)])

    def launch_both(self, gpus, **changes):
        return [self.launch(node, gpus, **changes) for node in (0, 1)]

    def check_files(self, ranks_of_second, steps=STEPS):
        """Each node has what its ranks leave, and rank 0's what is the run's."""
        self.check_bits(self.node_folders[0], max(ranks_of_second) + 1, steps)
        second = self.node_folders[1]
        self.assertEqual(sorted(os.listdir(second / "out")),
                         [f"trace.rank{rank}.json" for rank in ranks_of_second])
        self.assertEqual(os.listdir(second / "nvme"), [])

    def link(self, state):
        self.network.ip(0, "link", "set", "lan", state)

    def steps_done(self):
        metrics = self.node_folders[0] / "out/metrics.jsonl"
        return metrics.read_text().count("\n") if metrics.exists() else 0

    def wait_until_training(self, *processes):
        wait_for(lambda: any(process.poll() is not None for process in processes) or
                 self.steps_done() >= 3, "the third step")
        for process in processes:
            if process.poll() is not None:
                self.fail(f"it ended with {process.returncode}: {process.communicate()[1]}")

    def test_launch_2_and_2(self):
        self.check_success(*self.launch_both(2, steps=STEPS))
        self.check_files([2, 3])

    def test_the_commands_that_a_hostfile_gives(self):
        for folder in self.node_folders:
            (folder / "hosts").write_text(f"{ADDRESSES[0]} slots=2\n{ADDRESSES[1]} slots=1\n")
        lister = self.start_on(0, [faults.MAREA, "launch", "--hostfile", "hosts", "--",
                                   *self.words(steps=STEPS)])
        lines = lister.communicate(timeout=20)[0].splitlines()
        self.assertEqual([line.split(": ")[0] for line in lines], list(ADDRESSES))
        processes = []
        for node, line in enumerate(lines):
            word, rest = line.split(": ", 1)[1].split(" ", 1)
            self.assertEqual(word, "marea")
            processes.append(self.start_on(node, ["sh", "-c", f"exec {faults.MAREA} {rest}"]))
        self.check_success(*processes)
        self.check_files([2])

    def test_slurm(self):
        """As srun starts four tasks on two nodes, 2 on each."""
        job = {"SLURM_NTASKS": "4", "SLURM_JOB_NUM_NODES": "2", "SLURM_TASKS_PER_NODE": "2(x2)",
               "SLURM_JOB_NODELIST": "10.77.0.[1-2]", "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0"}
        self.check_success(*[
            self.start_on(rank // 2, [faults.MAREA, *self.words(steps=STEPS)],
                          {**job, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank % 2),
                           "SLURM_NODEID": str(rank // 2)}) for rank in range(4)])
        self.check_files([2, 3])

    @unittest.skipUnless(TORCHRUN.exists(), f"there is no {TORCHRUN}")
    def test_torchrun(self):
        """The store is that of node 0's agent, for the ranks of both."""
        self.check_success(*[self.start_on(node, [
            TORCHRUN, "--no-python", "--nnodes=2", f"--node-rank={node}", "--nproc-per-node=1",
            f"--master-addr={ADDRESSES[0]}", "--master-port=29511", faults.MAREA,
            *self.words(steps=STEPS)]) for node in (0, 1)])
        self.check_files([1])

    def test_a_killed_rank_ends_both_nodes(self):
        launches = self.launch_both(1)
        self.wait_until_training(*launches)
        os.kill(ranks_of(launches[1])[1], signal.SIGKILL)
        self.check_end(launches[0], faults.DEATH, (1,), r"rank 1\b.*ended without a word")
        self.check_end(launches[1], faults.DEATH, (1,), "rank 1 was killed by signal 9")

    def test_an_interrupt_on_one_node_ends_both_after_one_step(self):
        launches = self.launch_both(1)
        self.wait_until_training(*launches)
        launches[1].send_signal(signal.SIGINT)
        self.check_success(*launches)
        run = Run(self.node_folders[0])
        self.assertTrue(run.summary["interrupted"])
        self.assertEqual(run.summary["steps"], len(run.lines))

    def test_the_link_goes_down(self):
        limit = 5
        launches = self.launch_both(2, **{"stall-limit": limit})
        self.wait_until_training(*launches)
        self.link("down")
        self.addCleanup(self.link, "up")
        began = time.monotonic()
        self.check_end(launches[0], limit + ENDING, (1,), r"rank [23]\b.* 5 s")
        stderr = self.check_end(launches[1], limit + ENDING, (1,), r"rank 0\b.* 5 s")
        self.assertGreater(time.monotonic() - began, limit - 1)
        self.assertLess(time.monotonic() - began, limit + ENDING)
        for rank in (2, 3):
            self.assertRegex(stderr, rf"(?m)^\[{rank}\] marea: .*rank 0\b")
        for line in (self.node_folders[0] / "out/metrics.jsonl").read_text().splitlines():
            json.loads(line)

    def test_a_link_that_comes_back_in_time_disturbs_nothing(self):
        launches = self.launch_both(1, steps=LONGER)
        self.wait_until_training(*launches)
        self.link("down")
        self.addCleanup(self.link, "up")
        time.sleep(1)
        done = self.steps_done()
        time.sleep(1)
        self.assertEqual(self.steps_done(), done)
        self.assertLess(done, LONGER)
        self.link("up")
        self.check_success(*launches)
        self.check_files([1], LONGER)

    def test_no_link_from_the_start(self):
        self.link("down")
        self.addCleanup(self.link, "up")
        limit = 3
        launches = self.launch_both(1, **{"rank-timeout": limit})
        self.check_end(launches[0], limit + ENDING, (1,), r"rank 1\b.*did not come")
        self.check_end(launches[1], limit + ENDING, (1,), re.escape(ADDRESSES[0]))


@unittest.skipUnless(TORCHRUN.exists(), f"there is no {TORCHRUN}")
class Torchrun(NodesCase):
    def torchrun(self, *flags, **changes):
        process = self.start_in(self.folder, [
            TORCHRUN, "--no-python", "--nproc-per-node=2", f"--master-port={self.port}", *flags,
            faults.MAREA, *self.words(**changes)])
        # It ends its ranks where it is asked to end itself, but not where it is killed.
        self.addCleanup(lambda: process.poll() is None and (process.terminate(), process.wait(40)))
        return process

    def kill_rank(self, torchrun, rank):
        os.kill(ranks_of(torchrun)[rank], signal.SIGKILL)

    def ended(self, process):
        """Of a torchrun that fails: its report is a traceback, which no rank of ours may print."""
        _, stderr = process.communicate(timeout=RUN_SECONDS_MAX)
        ours = "\n".join(line for line in stderr.splitlines() if line.startswith("marea: "))
        for raw in faults.RAW_FAILURES:
            self.assertNotIn(raw, ours)
        return stderr

    def test_two_ranks(self):
        self.check_success(self.torchrun(steps=STEPS))
        self.check_bits(self.folder, 2)

    def test_a_restart_after_a_killed_rank(self):
        process = self.torchrun("--max-restarts=1", steps=LONGER)
        self.wait_until_training(process)
        self.kill_rank(process, 1)
        self.check_success(process)
        self.check_bits(self.folder, 2, LONGER)

    def test_a_killed_rank_ends_the_run(self):
        process = self.torchrun()
        self.wait_until_training(process)
        self.kill_rank(process, 1)
        stderr = self.ended(process)
        self.assertEqual(process.returncode, 1, stderr)
        self.assertRegex(stderr, r"(?m)^marea: rank 1\b")
        self.assertRegex(stderr, r"rank\s*: 1 .*\n\s*exitcode\s*: -9")

    def test_the_exit_status_of_a_rank_is_reported(self):
        process = self.torchrun(config="nowhere.json")
        stderr = self.ended(process)
        self.assertEqual(process.returncode, 1, stderr)
        self.assertRegex(stderr, r"(?m)^marea: .*nowhere\.json")
        self.assertRegex(stderr, r"exitcode\s*: 2")


def main():
    if os.geteuid() != 0 and subprocess.run(["unshare", "-Ur", "true"], check=False,
                                            capture_output=True).returncode == 0:
        os.execvp("unshare", ["unshare", "-Ur", sys.executable, *sys.argv])
    faults.MAREA, faults.WORK = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    faults.WORK.mkdir(parents=True, exist_ok=True)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)


if __name__ == "__main__":
    main()
