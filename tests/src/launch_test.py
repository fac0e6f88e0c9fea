"""`marea launch` as a user runs it: ranks, their lines, signals, exit statuses, nothing left."""
import json
import os
import re
import signal
import socket
import sys
import time
import unittest

import command_case
from command_case import CommandCase, is_gone, state_of, wait_for

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR",
             "MASTER_PORT")


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def environment_of(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            entries = file.read().decode().split("\0")
    except OSError:
        return {}
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


class LaunchCase(CommandCase):
    def launch(self, *words, **options):
        return self.marea("launch", *words, **options)

    def start_ranks(self, count, *words, environment=None):
        """A launch whose ranks train on and on, and their processes by their number."""
        process = self.start(
            "launch", "--gpus", str(count), *words, "--", "train",
            *self.run_flags(steps=1000000, output="out"), env=environment)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        wait_for(lambda: process.poll() is not None or len(self.ranks(process)) == count,
                 "the ranks")
        return process, self.ranks(process)

    @staticmethod
    def ranks(process):
        found = {environment_of(pid).get("RANK"): pid for pid in children_of(process.pid)}
        found.pop(None, None)
        return {int(rank): pid for rank, pid in found.items()}

    def end(self, process, ranks, seconds):
        """Waits for the launch; no process of it may outlive it."""
        began = time.monotonic()
        process.stdout_text, process.stderr_text = process.communicate(timeout=seconds)
        self.assertLess(time.monotonic() - began, seconds)
        wait_for(lambda: all(is_gone(pid) for pid in ranks.values()), "the ranks' end", 5)
        return process


class Usage(LaunchCase):
    def test_mistakes_are_one_sentence(self):
        self.write("hosts", "a slots=2\nb slots=x\n")
        command = ("--", "report")
        for words, parts in [
                ((), ["--", "marea launch --gpus N -- train"]),
                (("--gpus", "2"), ["behind `--`"]),
                (("--gpus", "2", "--"), ["behind `--`"]),
                (("--gpus", "2", "report"), ["behind `--`"]),
                (command, ["--gpus"]),
                (("--gpus", "0", *command), ["--gpus", "0"]),
                (("--gpus", "-1", *command), ["--gpus", "-1"]),
                (("--gpus", "two", *command), ["--gpus", "two"]),
                (("--gpus", "1000000", *command), ["--gpus", "1000000"]),
                (("--gpu", "2", *command), ["--gpu", "--gpus"]),
                (("--gpus", "2", "--nodes", "2", *command), ["--node-rank", "--master-addr"]),
                (("--gpus", "2", "--nodes", "2", "--node-rank", "2", "--master-addr", "a",
                  *command), ["--node-rank", "2"]),
                (("--gpus", "2", "--master-port", "70000", *command), ["--master-port", "70000"]),
                (("--gpus", "2", "--hostfile", "hosts", *command), ["--hostfile", "--gpus"]),
                (("--hostfile", "nowhere", *command), ["nowhere"]),
                (("--hostfile", "hosts", *command), ["hosts, line 2", "slots=N"]),
                (("--gpus", "2", "--", "launch", "--gpus", "2"), ["launch"])]:
            with self.subTest(words=words):
                self.check_failure(self.launch(*words), 2, parts)

    def test_not_under_torchrun(self):
        process = self.launch("--gpus", "2", "--", "report",
                              env={**os.environ, "TORCHELASTIC_RUN_ID": "none"})
        self.check_failure(process, 2, ["torchrun"])

    def test_help(self):
        process = self.launch("--help")
        self.assertEqual(process.returncode, 0)
        for part in ("--gpus", "--nodes", "--hostfile", "-- train"):
            self.assertIn(part, process.stdout_text)
        self.assertIn("launch", self.marea("--help").stdout_text)

    def test_a_hostfile_says_what_to_run_where(self):
        self.write("hosts", "# two\nworker-1 slots=2\nworker-2 slots=3\n")
        process = self.launch("--hostfile", "hosts", "--", "train", "--data", "my text.txt")
        self.assertEqual(process.returncode, 0, process.stderr_text)
        self.assertEqual(process.stdout_text.splitlines(), [
            f"worker-{1 + node}: marea launch --hostfile hosts --node-rank {node} -- "
            "train --data 'my text.txt'" for node in (0, 1)])


class Ranks(LaunchCase):
    def test_lines_bear_their_rank(self):
        process = self.launch("--gpus", "2", "--", "report")
        self.assertEqual(process.returncode, 0, process.stderr_text)
        lines = process.stdout_text.splitlines()
        alone = self.marea("report").stdout_text.splitlines()
        for rank in (0, 1):
            of_rank = [line for line in lines if line.startswith(f"[{rank}] ")]
            self.assertEqual(len(of_rank), len(alone))
        self.assertEqual(len(lines), 2 * len(alone))

    def test_one_rank_writes_as_it_does_alone(self):
        process = self.launch("--ranks", "1", "--", "--version")
        self.assertEqual(process.stdout_text, self.marea("--version").stdout_text)

    def test_json_stays_json(self):
        process = self.launch("--gpus", "1", "--", "report", "--json")
        json.loads(process.stdout_text)
        process = self.launch("--gpus", "2", "--", "report", "--json")
        self.assertEqual(process.returncode, 0, process.stderr_text)
        self.assertNotIn("[0]", process.stdout_text)

    def test_the_commands_status_is_passed_on(self):
        for words, status, part in [(["trian"], 2, "'trian'"), (["train", "--steps", "x"], 2, "--"),
                                    (["inspect", "nowhere"], 2, "nowhere")]:
            process = self.launch("--nproc_per_node", "2", "--", *words)
            self.assertEqual(process.returncode, status, process.stderr_text)
            self.assertEqual(process.stdout_text, "")
            self.assertRegex(process.stderr_text, rf"(?m)^\[0\] marea: .*{part}")
            self.assertRegex(process.stderr_text, rf"(?m)^\[1\] marea: .*{part}")
            self.assertRegex(process.stderr_text,
                             rf"(?m)^marea: rank [01] failed with exit status {status}$")

    def test_each_finds_torchruns_variables(self):
        environment = {**os.environ, "RANK": "77", "WORLD_SIZE": "99"}
        environment.pop("OMP_NUM_THREADS", None)
        process, ranks = self.start_ranks(3, environment=environment)
        self.assertEqual(sorted(ranks), [0, 1, 2])
        seen = {rank: environment_of(pid) for rank, pid in ranks.items()}
        for rank, found in seen.items():
            port = found["MASTER_PORT"]
            self.assertEqual({name: found[name] for name in VARIABLES}, {
                "RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": "3", "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": seen[0]["MASTER_PORT"]})
            self.assertTrue(1024 <= int(port) <= 65535, port)
            self.assertNotIn("OMP_NUM_THREADS", found)
        process.send_signal(signal.SIGKILL)
        self.end(process, ranks, 10)

    def test_a_node_of_several(self):
        self.write("hosts", "worker-1 slots=2\nworker-2 slots=1\n")
        for words, first, world, local in [
                (("--gpus", "2", "--nodes", "2", "--node-rank", "1", "--master-addr", "10.9.8.7",
                  "--master-port", "4321"), 2, 4, 2),
                (("--hostfile", "hosts", "--node-rank", "1", "--master-addr", "10.9.8.7",
                  "--master-port", "4321"), 2, 3, 1)]:
            process = self.start("launch", *words, "--", "train",
                                 *self.run_flags(steps=1000000, output="out"))
            self.addCleanup(lambda process=process: process.poll() is None and process.kill())
            wait_for(lambda: process.poll() is not None or len(self.ranks(process)) == local,
                     "the ranks")
            ranks = self.ranks(process)
            self.assertEqual(sorted(ranks), list(range(first, first + local)))
            found = environment_of(ranks[first])
            self.assertEqual([found[name] for name in VARIABLES],
                             [str(first), str(world), "0", str(local), "1", "10.9.8.7", "4321"])
            process.kill()
            self.end(process, ranks, 10)

    def test_the_port_is_a_free_one_each_time(self):
        ports = []
        for _ in range(2):
            process, ranks = self.start_ranks(2)
            ports.append(int(environment_of(ranks[0])["MASTER_PORT"]))
            process.kill()
            self.end(process, ranks, 10)
        for port in ports:
            with socket.socket() as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(("127.0.0.1", port))


class Ends(LaunchCase):
    def test_a_killed_rank_is_named_and_the_others_end(self):
        process, ranks = self.start_ranks(2, "--grace", "1")
        os.kill(ranks[1], signal.SIGKILL)
        self.end(process, ranks, 15)
        self.assertEqual(process.returncode, 1, process.stderr_text)
        self.assertRegex(process.stderr_text, r"(?m)^marea: rank 1 was killed by signal 9 "
                         r"\(SIGKILL\): out of memory is the usual cause, see dmesg$")

    def test_a_rank_that_stands_still_is_killed_too(self):
        process, ranks = self.start_ranks(2, "--grace", "1")
        os.kill(ranks[0], signal.SIGSTOP)
        os.kill(ranks[1], signal.SIGKILL)
        self.end(process, ranks, 20)
        self.assertEqual(process.returncode, 1, process.stderr_text)
        self.assertIn("marea: rank 0 is killed", process.stderr_text)

    def test_signals_are_passed_on(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process, ranks = self.start_ranks(2)
            process.send_signal(number)
            time.sleep(0.3)
            if process.poll() is None:
                process.send_signal(number)  # the second ends at once
            self.end(process, ranks, 20)
            self.assertIn(process.returncode, (0, 1, 128 + number), process.stderr_text)
            self.assertNotIn("out of memory", process.stderr_text)

    def test_a_terminals_interrupt_comes_once(self):
        """Ctrl-C goes to every process of the terminal's group: the launcher's, not the ranks'."""
        process, ranks = self.start_ranks(2)
        for pid in ranks.values():
            self.assertEqual(os.getpgid(pid), pid)
        process.kill()
        self.end(process, ranks, 10)

    def test_a_terminals_stop_stops_the_ranks_as_well(self):
        process, ranks = self.start_ranks(2)
        everyone = [process.pid, *ranks.values()]
        process.send_signal(signal.SIGTSTP)
        wait_for(lambda: all(state_of(pid) == "T" for pid in everyone), "the stop", 10)
        process.send_signal(signal.SIGCONT)
        wait_for(lambda: all(state_of(pid) != "T" for pid in everyone), "the continuation", 10)
        process.kill()
        self.end(process, ranks, 10)

    def test_ranks_die_with_a_killed_launcher(self):
        process, ranks = self.start_ranks(3)
        process.kill()
        self.end(process, ranks, 10)

    def test_a_reader_that_goes_away(self):
        process = self.start("launch", "--gpus", "2", "--", "report")
        process.stdout.close()
        errors = process.stderr.read()
        self.assertEqual(process.wait(timeout=30), 1, errors)
        self.assertRegex(errors, re.compile("^marea: .*stdout", re.MULTILINE))
        process.stderr.close()


if __name__ == "__main__":
    command_case.main(sys.argv)
