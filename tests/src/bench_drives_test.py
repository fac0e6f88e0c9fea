"""`marea bench` on drives made for it: mounts that mark a figure, and drives with a limit."""
import json
import os
import subprocess
import sys

import command_case
import drive_case
from bench_case import QUICK, BenchCase
from command_case import wait_for


class Mounts(drive_case.MountCase):
    def test_loop_device(self):
        device = self.loop("one", 160)
        report = self.figures("--nvme", "one", "--size", "64MiB", "--seconds", "0.2", "--rw",
                              "read,write")
        warnings = self.warnings(report)
        self.assertIn("a loop device over the sparse file", warnings)
        results = report["results"]
        # Each path alone, then both side by side.
        self.assertEqual([(r["workload"], len(r["paths"])) for r in results],
                         [("read", 1), ("write", 1)] * 2 + [("read", 2), ("write", 2)])
        os.mkdir(self.path("again"))
        self.assertEqual(self.shell("mount", device, self.path("again")).returncode, 0)
        self.addCleanup(self.shell, "umount", self.path("again"))
        self.refuses_bench(["one", "again", "same folder"], "--nvme", "one", "again", *QUICK)
        os.mkdir(self.path("one/below"))
        self.refuses_bench(["one", "again/below", "both on", "one folder a drive"], "--nvme", "one",
                           "again/below", *QUICK)
        self.refuses_bench(["one", "free"], "--nvme", "one", "--size", "1GiB")

    def test_large_sectors(self):
        self.loop("large", 160, "--sector-size", "4096")
        process = self.bench("--nvme", "large", *QUICK, "--bs", "4096", "--rw", "read", "--json")
        self.assertEqual(process.returncode, 0, process.stderr_text)
        path = json.loads(process.stdout_text)["environment"]["paths"][0]
        self.assertEqual(path["direct_io_alignment_bytes"], 4096)

    def test_overlayfs(self):
        for name in ("lower", "upper", "work", "merged"):
            os.mkdir(self.path(name))
        options = "lowerdir=lower,upperdir=upper,workdir=work"
        words = f"mount -t overlay overlay -o {options} merged || exit 99\n" \
                f"exec {command_case.MAREA} bench --nvme merged --json --size 64MiB " \
                "--seconds 0.2 --rw read"
        process = subprocess.run(["unshare", "-m", "sh", "-c", words], cwd=self.folder, text=True,
                                 capture_output=True, timeout=60)
        if process.returncode == 99 or "unshare" in process.stderr:
            self.skipTest("no overlay mounts here")
        self.assertEqual(process.returncode, 0, process.stderr)
        warnings = self.warnings(json.loads(process.stdout))
        self.assertIn("overlayfs", warnings)
        self.assertIn("not known", warnings)


class Throttled(BenchCase):
    def setUp(self):
        super().setUp()
        number = os.stat(self.folder).st_dev
        self.throttle = drive_case.Throttle(f"{os.major(number)}:{os.minor(number)}")
        if os.geteuid() != 0 or not self.throttle.open():
            self.skipTest("no cgroup that limits a drive here")
        self.addCleanup(self.throttle.close)

    def test_a_limited_drive_gives_its_limit(self):
        self.throttle.set(200_000_000)
        process = self.bench("--nvme", "nvme", "--json", "--size", "64MiB", "--seconds", "2",
                             "--rw", "read", "--require", "300MB/s",
                             preexec_fn=self.throttle.enter)
        self.assertEqual(process.returncode, 3, process.stderr_text)
        self.assertIn("below the required 300 MB/s", process.stderr_text)
        rate = json.loads(process.stdout_text)["results"][0]["gb_per_second"]
        self.assertAlmostEqual(rate, 0.2, delta=0.01)

    def test_a_drive_that_does_not_answer(self):
        process = self.start("bench", "--nvme", "nvme", "--size", "64MiB", "--seconds", "60",
                             "--rw", "read", "--give-up", "1", preexec_fn=self.throttle.enter)
        self.addCleanup(process.kill)
        for line in process.stderr:
            if line.startswith("read "):
                break
        self.throttle.set(1)  # a byte a second
        try:
            wait_for(lambda: "not answered" in process.stderr.readline(), "the sentence", 20)
        finally:
            self.throttle.set(0)  # lets what is in flight go on, so that the process can end
        stdout, _ = process.communicate(timeout=20)
        self.assertEqual(process.returncode, 1)
        self.assertEqual(stdout, "")


if __name__ == "__main__":
    command_case.main(sys.argv)
