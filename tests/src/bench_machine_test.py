"""`marea bench --all` and `--endurance-rating` as a user runs them: figures, the profile's file,
refusals, and nothing left behind."""
import json
import os
import signal
import subprocess
import sys
import time
import unittest

import command_case
from bench_case import QUICK, BenchCase

# Between the slowest machine that could run this and the fastest that there is.
PLAUSIBLE = {
    "ram_copy_bytes_per_second": (2e8, 1e14),
    "adamw_parameters_per_second": (1e6, 1e13),
    "cpu_fp32_flop_per_second": (1e8, 1e16),
    "cpu_bf16_flop_per_second": (1e8, 1e17),
    "h2d_bytes_per_second": (1e8, 1e13),
    "d2h_bytes_per_second": (1e8, 1e13),
    "both_h2d_bytes_per_second": (1e8, 1e13),
    "both_d2h_bytes_per_second": (1e8, 1e13),
    "gpu_bf16_flop_per_second": (1e11, 1e17),
    "all_gather_bytes_per_second": (1e6, 1e14)}
ALWAYS = ("ram_copy_bytes_per_second", "adamw_parameters_per_second", "cpu_fp32_flop_per_second")
OF_A_GPU = ("h2d_bytes_per_second", "d2h_bytes_per_second", "both_h2d_bytes_per_second",
            "both_d2h_bytes_per_second", "gpu_bf16_flop_per_second")
RATES = ("read_bytes_per_second", "write_bytes_per_second", "mixed_read_bytes_per_second",
         "mixed_write_bytes_per_second")
BRIEF = ("--seconds", "0.05")
TB = 10 ** 12


class All(BenchCase):
    def check_profile(self, profile):
        """Every figure is plausible, or null with a sentence that says why."""
        self.assertEqual((profile["format"], profile["version"]), ("marea-machine", 1))
        machine = profile["machine"]
        self.assertTrue(machine["cpu"] and machine["kernel"])
        self.assertLessEqual(1, machine["threads"])
        self.assertLessEqual(machine["threads"], machine["hardware_threads"])
        self.assertEqual(set(profile["figures"]), set(PLAUSIBLE))
        for key, value in profile["figures"].items():
            if value is None:
                self.assertNotIn(key, ALWAYS)
                self.assertGreater(len(profile["not_measured"][key]), 10)
            else:
                self.assertNotIn(key, profile["not_measured"])
                least, most = PLAUSIBLE[key]
                self.assertLess(least, value, key)
                self.assertLess(value, most, key)
        for key in OF_A_GPU:
            if not machine["gpus"]:
                self.assertTrue(profile["not_measured"][key].startswith("no GPU"), key)

    def test_without_drives(self):
        process = self.bench("--all", "--json", "--machine-profile", "machine.json", *BRIEF)
        self.assertEqual(process.returncode, 0, process.stderr_text)
        report = json.loads(process.stdout_text)
        profile = json.loads(self.read("machine.json"))
        self.assertEqual(report["machine_profile"], profile)
        self.assertEqual(report["results"], [])
        self.check_profile(profile)
        self.assertEqual((profile["nvme"], profile["nvme_together"]), ([], None))
        self.assertIn("--nvme", profile["not_measured"]["nvme"])
        for step in ("RAM", "AdamW", "CPU matmul"):
            self.assertIn(step, process.stderr_text)
        self.assertFalse(os.path.exists(self.path("machine.json.partial")))

    def test_with_a_drive(self):
        self.write("machine.json", "an older one")
        process = self.bench("--all", "--nvme", "nvme", "--machine-profile", "machine.json",
                             "--size", "64MiB", "--endurance-rating", "600TBW", *BRIEF)
        self.assertEqual(process.returncode, 0, process.stderr_text)
        profile = json.loads(self.read("machine.json"))
        self.check_profile(profile)
        self.assertEqual([drive["path"] for drive in profile["nvme"]], ["nvme"])
        for key in RATES:
            self.assertGreater(profile["nvme"][0][key], 1e6)
        self.assertIsNone(profile["nvme_together"])
        self.assertNotIn("nvme", profile["not_measured"])
        for part in ("RAM copy", "million parameters/s", "GFLOP/s", "GB/s", "all-gather",
                     "core-ms/GB", "the worst case", "machine.json"):
            self.assertIn(part, process.stdout_text)
        self.assertEqual(os.listdir(self.path("nvme")), [])

    def test_with_ranks(self):
        process = self.marea("launch", "--ranks", "2", "--", "bench", "--all", "--json",
                             "--machine-profile", "machine.json", *BRIEF)
        self.assertEqual(process.returncode, 0, process.stderr_text)
        profile = json.loads(self.read("machine.json"))
        self.check_profile(profile)
        self.assertIsNotNone(profile["figures"]["all_gather_bytes_per_second"])
        alone = self.marea("launch", "--ranks", "2", "--", "bench", "--nvme", "nvme", *QUICK)
        self.assertEqual(alone.returncode, 2, alone.stderr_text)
        self.assertIn("only with --all", alone.stderr_text)

    def test_no_more_processors_than_it_may_use(self):
        process = self.bench("--all", "--json", *BRIEF, preexec_fn=on_one_processor)
        self.assertEqual(process.returncode, 0, process.stderr_text)
        machine = json.loads(process.stdout_text)["machine_profile"]["machine"]
        self.assertEqual((machine["threads"], machine["hardware_threads"]), (1, 1))

    def test_where_the_profile_goes_is_checked_first(self):
        began = time.monotonic()
        self.refuses_bench(["--machine-profile nowhere/m.json", "no folder nowhere"], "--all",
                           "--machine-profile", "nowhere/m.json", "--seconds", "30")
        self.refuses_bench(["--machine-profile nvme", "is a folder"], "--all",
                           "--machine-profile", "nvme", "--seconds", "30")
        self.assertLess(time.monotonic() - began, command_case.SECONDS_MAX)

    def test_a_refused_drive_leaves_the_old_profile(self):
        self.write("machine.json", "an older one")
        self.refuses_bench(["nowhere", "does not exist"], "--all", "--nvme", "nowhere",
                           "--machine-profile", "machine.json", *QUICK)
        self.assertEqual(self.read("machine.json"), "an older one")

    def test_interrupted(self):
        self.write("machine.json", "an older one")
        process = self.start("bench", "--all", "--machine-profile", "machine.json", "--seconds",
                             "60")
        try:
            command_case.wait_for(lambda: os.path.exists(self.path("machine.json.partial")),
                                  "the measurement's start")
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        self.assertEqual((process.returncode, stdout), (130, ""), stderr)
        self.assertIn("stopped before the end", stderr)
        self.assertEqual(self.read("machine.json"), "an older one")
        self.assertFalse(os.path.exists(self.path("machine.json.partial")))


class Endurance(BenchCase):
    def test_of_a_plan(self):
        plan = self.marea("plan", *self.run_flags(config="offloaded.json"), "--json")
        self.assertEqual(plan.returncode, 0, plan.stderr_text)
        self.write("plan.json", plan.stdout_text)
        words = ("--replay", "plan.json", "--seconds", "0.2", "--endurance-rating", "600TB")
        report = self.figures(*words)
        self.assertEqual(len(report["endurance"]), 1)
        estimate = report["endurance"][0]
        self.assertEqual((estimate["path"], estimate["basis"]), ("nvme", "replay"))
        self.assertEqual(estimate["rating_bytes"], 600 * TB)
        # Whole pages of what the plan itself says that a training step writes.
        written = sum(-(-op["accesses"][-1][2] // 4096) * 4096
                      for op in json.loads(plan.stdout_text)["ops"]
                      if op["kind"] == "write" and op.get("when", "always") != "if_eval")
        self.assertEqual(estimate["step_write_bytes"], written)
        # The replay writes whole steps, so its rate of writing is the one of the estimate.
        rate = report["results"][0]["write_gb_per_second"] * 1e9
        self.assertAlmostEqual(estimate["bytes_per_day"] / (rate * 86400), 1, 2)
        self.assertAlmostEqual(estimate["days"], 600 * TB / estimate["bytes_per_day"], 6)
        text = self.bench("--nvme", "nvme", *words)
        self.assertIn("a step, ", text.stdout_text)
        self.assertIn("a run writes no faster", text.stdout_text)

    def test_of_writing_alone(self):
        report = self.figures(*QUICK, "--rw", "write", "--endurance-rating", "1TB")
        estimate = report["endurance"][0]
        self.assertEqual((estimate["basis"], estimate["step_write_bytes"]), ("write", None))
        rate = report["results"][0]["write_gb_per_second"] * 1e9
        self.assertAlmostEqual(estimate["bytes_per_day"] / (rate * 86400), 1, 6)
        self.assertAlmostEqual(estimate["days"] * estimate["bytes_per_day"] / TB, 1, 6)

    def test_is_absent_unless_asked_for(self):
        self.assertNotIn("endurance", self.figures(*QUICK, "--rw", "write"))


def on_one_processor():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


if __name__ == "__main__":
    command_case.main(sys.argv)
