"""`marea bench` as a user runs it: figures, refusals, limits, and no file left behind."""
import ctypes
import json
import os
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import unittest

import command_case
from bench_case import QUICK, BenchCase

URING_CALLS = (425, 426, 427)
NOBODY = 65534


def forbid(numbers, error_number):
    """A seccomp filter under which these system calls fail, as in a container."""
    code = [struct.pack("HBBI", 0x20, 0, 0, 0)]  # load the number
    for number in numbers:
        code.append(struct.pack("HBBI", 0x15, 0, 1, number))
        code.append(struct.pack("HBBI", 0x06, 0, 0, 0x00050000 | error_number))
    code.append(struct.pack("HBBI", 0x06, 0, 0, 0x7fff0000))
    text = ctypes.create_string_buffer(b"".join(code))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code),
                                                      ctypes.addressof(text)))
    libc = ctypes.CDLL(None)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(program))):
        os._exit(99)


class Figures(BenchCase):
    def test_json(self):
        report = self.figures(*QUICK, "--require", "1MB/s")
        self.assertEqual(list(report), ["environment", "results", "best"])
        self.assertEqual([r["workload"] for r in report["results"]],
                         ["read", "write", "mixed", "random_read"])
        for result in report["results"]:
            for key in ("paths", "block_bytes", "queue_depth", "gb_per_second",
                        "read_gb_per_second", "write_gb_per_second", "latency_us",
                        "cpu_core_ms_per_gb", "warnings"):
                self.assertIn(key, result)
            self.assertEqual(result["paths"], ["nvme"])
            self.assertEqual((result["block_bytes"], result["queue_depth"]), (1 << 20, 32))
            self.assertGreater(result["gb_per_second"], 0.001)
            self.assertAlmostEqual(
                result["gb_per_second"],
                result["read_gb_per_second"] + result["write_gb_per_second"], 6)
            self.assertGreater(result["cpu_core_ms_per_gb"], 0)
            self.assertGreater(result["data_core_ms_per_gb"], 0)
            latency = [result["latency_us"][key] for key in ("p50", "p99", "p999", "max")]
            self.assertEqual(latency, sorted(latency))
            self.assertGreater(latency[0], 0)
        read, write, mixed, random_read = report["results"]
        self.assertEqual(read["write_gb_per_second"] + random_read["write_gb_per_second"], 0)
        self.assertEqual(write["read_gb_per_second"], 0)
        self.assertGreater(mixed["read_gb_per_second"], 0)
        self.assertGreater(mixed["write_gb_per_second"], 0)
        self.assertIn("--size", self.warnings(report))  # 64 MiB is small, and marked so
        path = report["environment"]["paths"][0]
        self.assertTrue(path["file_system"] and path["mount_options"])
        self.assertTrue(report["environment"]["io_mode"])
        self.assertEqual(os.listdir(self.path("nvme")), [])

    def test_table_and_fios_names(self):
        process = self.bench("--nvme=nvme", "--size=32M", "--bs", "256K", "--iodepth=8",
                             "--runtime", "0.2s", "--rw=randread", "--workload", "write")
        self.assertEqual(process.returncode, 0, process.stderr_text)
        lines = process.stdout_text.splitlines()
        head = [line for line in lines if line.startswith("workload")]
        self.assertEqual(len(head), 1)
        for word in ("GB/s", "GiB/s", "p50", "p99.9", "core-ms/GB"):
            self.assertIn(word, head[0])
        rows = [line.split() for line in lines if line.startswith(("random_read ", "write "))]
        self.assertEqual([row[0:4] for row in rows], [["random_read", "256", "KiB", "8"],
                                                      ["write", "256", "KiB", "8"]])
        for step in ("writing the file", "random_read 256 KiB x 8", "verifying every byte"):
            self.assertIn(step, process.stderr_text)

    def test_require(self):
        slow = self.bench("--nvme", "nvme", *QUICK, "--rw", "read", "--require", "900GB/s")
        self.assertEqual(slow.returncode, 3)
        self.assertIn("below the required 900 GB/s", slow.stderr_text)
        self.assertIn("core-ms/GB", slow.stdout_text)  # what was measured is not withheld

    def test_a_file_that_ends_within_a_block(self):
        size = (64 << 20) + 4096
        report = self.figures("--size", str(size), "--seconds", "0.1", "--rw", "write,read",
                              "--io", "threads")
        self.assertEqual(len(report["results"]), 2)
        self.assertIn("threads", report["environment"]["io_mode"])

    @unittest.skipUnless(os.environ.get("MAREA_LONG_TESTS"), "long: set MAREA_LONG_TESTS=1")
    def test_beyond_32_bits(self):
        report = self.figures("--size", str((4 << 30) + 4096), "--seconds", "0.1", "--rw", "write")
        self.assertGreater(report["results"][0]["gb_per_second"], 0)

    def test_a_window_shorter_than_a_request(self):
        """Goes on until what is in flight has ended: a drive that pauses has a rate, too."""
        report = self.figures("--size", "64MiB", "--seconds", "1e-6", "--rw", "mixed")
        result = report["results"][0]
        self.assertGreater(result["read_gb_per_second"], 0)
        self.assertGreater(result["write_gb_per_second"], 0)

    def test_sweep(self):
        report = self.figures("--sweep", "--size", "256MiB", "--seconds", "0.02", "--rw", "read")
        shapes = {(r["block_bytes"], r["queue_depth"]) for r in report["results"]}
        self.assertGreater(len(shapes), 10)
        best = report["best"]
        self.assertIn((best["block_bytes"], best["queue_depth"]), shapes)
        self.assertEqual(best["config"]["aio"]["block_size"], best["block_bytes"])
        self.assertEqual(best["config"]["aio"]["queue_depth"], best["queue_depth"])
        # The section is one that a run takes as it is.
        config = {**command_case.OFFLOADED, **best["config"]}
        self.write("swept.json", json.dumps(config))
        planned = self.marea("plan", *self.run_flags(config="swept.json"))
        self.assertEqual(planned.returncode, 0, planned.stderr_text)
        self.assertNotIn("aio", planned.stderr_text)


class ReplayOfAPlan(BenchCase):
    def test_a_saved_plan(self):
        plan = self.marea("plan", *self.run_flags(config="offloaded.json"), "--json")
        self.assertEqual(plan.returncode, 0, plan.stderr_text)
        self.write("plan.json", plan.stdout_text)
        text = self.bench("--nvme", "nvme", "--replay", "plan.json", "--seconds", "0.1")
        self.assertIn("a step of the plan reads", text.stdout_text)
        report = self.figures("--replay", "plan.json", "--seconds", "0.2")
        self.assertEqual([r["workload"] for r in report["results"]], ["replay"])
        self.assertGreater(report["results"][0]["read_gb_per_second"], 0)
        self.assertGreater(report["results"][0]["write_gb_per_second"], 0)

    def test_what_is_no_plan(self):
        self.write("other.json", "{}")
        self.refuses_bench(["other.json"], "--nvme", "nvme", "--replay", "other.json")
        self.refuses_bench(["nowhere.json"], "--nvme", "nvme", "--replay", "nowhere.json")
        plan = self.marea("plan", *self.run_flags(), "--json")
        self.write("no-nvme.json", plan.stdout_text)
        self.refuses_bench(["no-nvme.json", "nothing to replay"], "--nvme", "nvme", "--replay",
                           "no-nvme.json")
        planned = self.marea("plan", *self.run_flags(config="offloaded.json"), "--json")
        lines = []
        for line in planned.stdout_text.splitlines():  # reads that wait for nothing
            if '"kind":"read"' in line:
                line = line[:line.index('"waits"')] + '"waits":[]}' + line[line.rindex("}") + 1:]
            lines.append(line)
        self.write("racy.json", "\n".join(lines))
        self.refuses_bench(["racy.json", "not sound"], "--nvme", "nvme", "--replay", "racy.json")


class BadInput(BenchCase):
    def test_flags(self):
        self.refuses_bench(["--nvme PATH"])  # the rest: bench_flags_test.cc
        self.refuses_bench(["--block-size 512", "4096"], "--nvme", "nvme", "--bs", "512")

    def test_paths(self):
        self.write("file", "x")
        for parts, words in [
                (["nowhere", "does not exist"], ["nowhere"]),
                (["file", "is not a folder"], ["file"]),
                (["nvme", "./nvme", "the same folder"], ["nvme", "./nvme"]),
                (["both on", "one folder a drive"], ["nvme", "tiny"]),
                (["/proc"], ["/proc"])]:
            with self.subTest(words=words):
                self.refuses_bench(parts, "--nvme", *words, *QUICK)

    def test_more_than_there_is(self):
        self.refuses_bench(["nvme", "free", "--size"], "--nvme", "nvme", "--size", "7000TiB")

    @unittest.skipUnless(os.geteuid() == 0, "only root may become another user")
    def test_a_folder_that_may_not_be_written(self):
        os.chmod(self.folder, 0o755)
        os.chmod(self.path("nvme"), 0o555)
        process = self.bench("--nvme", "nvme", *QUICK, preexec_fn=as_plain_user)
        if process.returncode in (99, 126):
            self.skipTest("a plain user cannot reach the program here")
        self.check_failure(process, 2, ["nvme", "not writable"])

    def test_memory_is_no_drive(self):
        if os.statvfs("/dev/shm").f_blocks == 0 or not os.access("/dev/shm", os.W_OK):
            self.skipTest("no tmpfs at /dev/shm")
        folder = tempfile.mkdtemp(dir="/dev/shm")
        self.addCleanup(shutil.rmtree, folder)
        self.refuses_bench([folder, "tmpfs", "memory"], "--nvme", folder, *QUICK)

    def test_fio_is_missing(self):
        environment = {**os.environ, "PATH": self.folder}
        self.refuses_bench(["no fio in PATH", "install"], "--nvme", "nvme", "--compare", "fio",
                           env=environment)


class Comparison(BenchCase):
    @unittest.skipUnless(shutil.which("fio"), "fio is not installed")
    def test_fio(self):
        report = self.figures("--compare", "fio", "--rw", "write", "--size", "64MiB", "--seconds",
                              "0.2")
        comparison = report["comparison"][0]
        self.assertEqual(len(comparison["fio"]["runs_gb_per_second"]), 5)
        self.assertEqual(len(comparison["marea"]["runs_gb_per_second"]), 5)
        self.assertGreater(comparison["ratio"], 0.1)


class NoFileIsLeft(BenchCase):
    def interrupted(self, signal_number, status):
        process = self.start("bench", "--nvme", "nvme", "--size", "64MiB", "--seconds", "60")
        self.addCleanup(process.kill)
        lines = []
        for line in process.stderr:
            lines.append(line)
            if line.startswith("read "):
                break
        time.sleep(0.2)
        self.assertEqual(os.listdir(self.path("nvme")), [])  # the file has no name
        process.send_signal(signal_number)
        stdout, stderr = process.communicate(timeout=20)
        self.assertEqual(process.returncode, status, "".join(lines) + stderr)
        self.assertEqual(stdout, "")
        self.assertEqual(os.listdir(self.path("nvme")), [])
        return stderr

    def test_interrupt(self):
        self.assertIn("no file is left", self.interrupted(signal.SIGINT, 130))

    def test_kill(self):
        self.interrupted(signal.SIGKILL, -9)


def as_plain_user(memlock=None):
    try:
        if memlock is not None:
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (memlock, memlock))
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        if not os.access(command_case.MAREA, os.X_OK) or not os.access(".", os.X_OK):
            os._exit(99)
    except OSError:
        os._exit(99)


class Limits(BenchCase):
    def finishes_in_mode(self, mode, *reasons, **options):
        os.chmod(self.folder, 0o777)
        os.chmod(self.path("nvme"), 0o777)
        process = self.bench("--nvme", "nvme", "--json", *QUICK, "--rw", "read,write", **options)
        if process.returncode == 99:
            self.skipTest("the limit cannot be set here")
        self.assertEqual(process.returncode, 0, process.stderr_text)
        environment = json.loads(process.stdout_text)["environment"]
        self.assertEqual(environment["io_mode"], mode)
        for reason in reasons:
            self.assertIn(reason, environment["io_mode_reason"])
        return environment

    def test_little_locked_memory(self):
        if os.geteuid() != 0:
            self.skipTest("only root may become another user")
        for kib in (64, 8192):
            with self.subTest(kib=kib):
                environment = self.finishes_in_mode(
                    "io_uring", "locked-memory limit",
                    preexec_fn=lambda kib=kib: as_plain_user(kib << 10))
                self.assertIn("ulimit -l", environment["io_mode_remedy"])

    def test_io_uring_forbidden(self):
        for number, name in ((1, "EPERM"), (38, "ENOSYS")):
            with self.subTest(name=name):
                self.finishes_in_mode("threads with pread/pwrite", name,
                                      preexec_fn=lambda number=number: forbid(URING_CALLS, number))
        process = self.bench("--nvme", "nvme", *QUICK, "--io", "io_uring",
                             preexec_fn=lambda: forbid(URING_CALLS, 1))
        self.check_failure(process, 2, ["io_uring", "EPERM", "remedy"])


if __name__ == "__main__":
    command_case.main(sys.argv)
