"""`marea plan` as a user runs it: what goes where, for how many ranks, and how long a step takes."""
import json
import os
import sys

import command_case
from command_case import CommandCase


class Plan(CommandCase):
    def test_prints_tiers_and_lanes(self):
        before = self.tree()
        process = self.marea("plan", *self.run_flags(config="offloaded.json"))
        self.assertEqual(process.returncode, 0, process.stderr_text)
        for part in ("budget", "predicted", "moment1", "nvme_read", "nvme_write", "update"):
            self.assertIn(part, process.stdout_text)
        self.assertEqual(self.tree(), before)

    def test_knows_every_config_that_comes_along(self):
        configs = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../configs")
        files = sorted(name for name in os.listdir(configs) if name.endswith(".json"))
        models = sorted(set(os.listdir(configs)) - set(files))
        self.assertTrue(files and models)
        # The others are of a size for GPUs: nothing of a plan depends on it but the budgets.
        for model in (name for name in models if name.endswith("-byte")):
            for file in files:
                with self.subTest(model=model, config=file):
                    process = self.marea("plan", *self.run_flags(
                        model=os.path.join(configs, model), config=os.path.join(configs, file),
                        ram="2GiB", vram="512MiB", nvme="nvme"))
                    self.assertEqual(process.returncode, 0, process.stderr_text)

    def test_ops_are_those_of_the_json(self):
        flags = self.run_flags(config="offloaded.json")
        plan = json.loads(self.marea("plan", *flags, "--json").stdout_text)
        without = self.marea("plan", *flags).stdout_text
        with_ops = self.marea("plan", *flags, "--ops").stdout_text
        self.assertEqual(len(with_ops.splitlines()) - len(without.splitlines()),
                         1 + len(plan["ops"]))
        self.assertGreater(len(plan["ops"]), 30)

    def test_tells_a_steps_time_from_a_machine_profile(self):
        rates = {"read_bytes_per_second": 1e9, "write_bytes_per_second": 1e6,
                 "mixed_read_bytes_per_second": 1e9, "mixed_write_bytes_per_second": 1e6}
        figures = {"ram_copy_bytes_per_second": 1e10, "adamw_parameters_per_second": 1e12,
                   "cpu_fp32_flop_per_second": 1e13}
        absent = ["cpu_bf16_flop_per_second", "h2d_bytes_per_second", "d2h_bytes_per_second",
                  "both_h2d_bytes_per_second", "both_d2h_bytes_per_second",
                  "gpu_bf16_flop_per_second", "all_gather_bytes_per_second"]
        profile = {
            "format": "marea-machine", "version": 1,
            "machine": {"cpu": "c", "hardware_threads": 2, "threads": 2, "kernel": "k", "gpus": []},
            "figures": figures | dict.fromkeys(absent),
            "nvme": [{"path": "elsewhere", "model": ""} | rates], "nvme_together": None,
            "not_measured": dict.fromkeys(absent, "not here")}
        self.write("machine.json", json.dumps(profile))
        flags = self.run_flags(config="offloaded.json", device="cpu")
        plan = json.loads(self.marea("plan", *flags, "--machine", "machine.json",
                                     "--json").stdout_text)
        estimate = plan["step_estimate"]
        # Of each op of a step that writes: `accesses` begins with the staging value of its bytes.
        written = sum(op["accesses"][0][2] for op in plan["ops"] if op["kind"] == "write")
        self.assertGreater(written, 0)
        self.assertAlmostEqual(estimate["lane_seconds"]["nvme_write"], written / 1e6, places=6)
        self.assertAlmostEqual(estimate["step_seconds_min"], written / 1e6, places=6)
        self.assertEqual(estimate["bound_by"], "nvme_write")
        self.assertEqual(estimate["not_told"], {})
        process = self.marea("plan", *flags, "--machine", "machine.json")
        self.assertRegex(process.stdout_text, r"(?m)^  lane +ops +bytes +depth +seconds")
        self.assertIn("machine.json: nvme_write bounds it", process.stdout_text)
        self.assertNotIn("step_estimate", self.marea("plan", *flags, "--json").stdout_text)
        self.assertIn("--machine-profile", self.marea("plan", *flags).stdout_text)
        # A profile without drives tells the rest and says what it leaves out.
        profile["nvme"] = []
        profile["not_measured"]["nvme"] = "no --nvme PATH was given"
        self.write("machine.json", json.dumps(profile))
        process = self.marea("plan", *flags, "--machine", "machine.json")
        self.assertIn("not in it: nvme_write: no --nvme PATH was given", process.stdout_text)
        for text, parts in [("{", ["--machine", "machine.json"]),
                            (json.dumps(plan), ["machine.json", "no machine profile"]),
                            (json.dumps(profile | {"nvme_together": 3}), ["nvme_together"])]:
            self.write("machine.json", text)
            self.check_failure(self.marea("plan", *flags, "--machine", "machine.json"), 2, parts)
        self.check_failure(self.marea("plan", *flags, "--machine", "none.json"), 2, ["none.json"])

    def test_is_what_train_does(self):
        flags = self.run_flags(config="offloaded.json")
        planned = self.marea("plan", *flags, "--json").stdout_text
        self.assertEqual(self.train(config="offloaded.json").returncode, 0)
        trained = json.loads(self.read("out/plan.json"))
        self.assertEqual(json.loads(planned)["ops"], trained["ops"])
        summary = json.loads(self.read("out/summary.json"))
        self.assertEqual(trained["home_bytes"]["nvme"], summary["placement"]["nvme"])


class PlanForRanks(CommandCase):
    """`--world-size N`: what a stage partitions is 1/N of it, and the rest is whole."""

    MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../configs/llama-byte")
    KINDS = ("weight", "master_low", "moment1", "moment2", "gradient")

    def home_bytes(self, stage, *words):
        self.write("zero.json", json.dumps({**command_case.DEEPSPEED, "zero_optimization": {
            "stage": stage, "stage3_param_persistence_threshold": 0}}))
        process = self.marea("plan", *self.run_flags(
            model=self.MODEL, config="zero.json", vram="1GiB", ram="8GiB", device="cpu"), "--json",
                             *words)
        self.assertEqual(process.returncode, 0, process.stderr_text)
        plan = json.loads(process.stdout_text)
        return plan["parameters"], {
            kind: sum(tier.get(kind, 0) for tier in plan["home_bytes"].values())
            for kind in self.KINDS}

    def test_bytes_fall_as_the_ranks_grow(self):
        partitioned = {0: (), 1: self.KINDS[1:], 2: self.KINDS[1:], 3: self.KINDS}
        for ranks in (2, 8):
            parameters, whole = self.home_bytes(0, "--world-size", str(ranks))
            # Nothing of stage 0 is partitioned; padding to pages and ranks is all that is added.
            for kind, element_bytes in zip(self.KINDS, (2, 2, 4, 4, 2), strict=True):
                self.assertGreaterEqual(whole[kind], parameters * element_bytes)
                self.assertLess(whole[kind], parameters * element_bytes * 1.05)
            for stage, parts in partitioned.items():
                with self.subTest(ranks=ranks, stage=stage):
                    _, own = self.home_bytes(stage, "--world-size", str(ranks))
                    self.assertEqual(own, {kind: whole[kind] // (ranks if kind in parts else 1)
                                           for kind in self.KINDS})
                    self.assertTrue(all(whole[kind] % ranks == 0 for kind in parts))

    def test_the_table_says_the_same(self):
        for stage, ranks in ((2, 8), (3, 4)):
            with self.subTest(stage=stage):
                _, own = self.home_bytes(stage, "--world-size", str(ranks))
                table = self.marea("plan", *self.run_flags(
                    model=self.MODEL, config="zero.json", vram="1GiB", ram="8GiB", device="cpu"),
                                   "--world-size", str(ranks)).stdout_text.splitlines()
                head = next(line for line in table if line.lstrip().startswith("tier"))
                rows = table[table.index(head) + 1:][:3]
                for kind in self.KINDS:
                    end = head.index(f" {kind}") + 1 + len(kind)
                    cells = [row[:end].rsplit("  ", 1)[1].strip() for row in rows]
                    printed = [cell for cell in cells if cell != "-"]
                    self.assertEqual(len(printed), 1, table)
                    number, unit = printed[0].split()
                    scale = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[unit]
                    # Three digits are printed.
                    self.assertAlmostEqual(float(number) * scale / own[kind], 1, delta=0.006)

    def test_ram_is_the_nodes(self):
        flags = self.run_flags(device="cpu", vram="32MiB", ram="8GiB")
        for words, ram in [(("--world-size", "8"), "1.00 GiB"),
                           (("--world-size", "8", "--gpus-per-node", "2"), "4.00 GiB")]:
            process = self.marea("plan", *flags, *words)
            self.assertRegex(process.stdout_text, rf"(?m)^ *ram +{ram} ")

    def test_values_without_sense(self):
        flags = self.run_flags(device="cpu")
        for words, parts in [
                (("--world-size", "0"), ["--world-size 0", "1 to 65536"]),
                (("--world-size", "-2"), ["--world-size -2"]),
                (("--world-size", "two"), ["--world-size two"]),
                (("--world-size", "2.5"), ["--world-size 2.5"]),
                (("--world-size", "100000"), ["--world-size 100000"]),
                (("--world-size", "8", "--gpus-per-node", "0"), ["--gpus-per-node 0"]),
                (("--world-size", "8", "--gpus-per-node", "3"),
                 ["--world-size 8", "--gpus-per-node 3"]),
                (("--world-size", "2", "--gpus-per-node", "4"),
                 ["--world-size 2", "--gpus-per-node 4"])]:
            with self.subTest(words=words):
                self.check_failure(self.marea("plan", *flags, *words), 2, parts)
        self.write("ds.json", json.dumps({**command_case.DEEPSPEED, "train_batch_size": 6}))
        self.check_failure(self.marea("plan", *flags, "--world-size", "8"), 2,
                           ["train_batch_size is 6", "8 rank(s)"])


if __name__ == "__main__":
    command_case.main(sys.argv)
