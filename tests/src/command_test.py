"""The commands as a user runs them: files, JSON, signals, and machines that allow less."""
import ctypes
import json
import os
import resource
import signal
import struct
import sys

import command_case
from command_case import CommandCase, lines_in, wait_for


class Train(CommandCase):
    def test_leaves_every_file_whole(self):
        process = self.train(config="offloaded.json")
        self.assertEqual(process.returncode, 0, process.stderr_text)
        self.assertEqual(sorted(os.listdir(self.path("out"))),
                         ["checkpoint", "metrics.jsonl", "plan.json", "summary.json", "trace.json"])
        self.assertEqual(sorted(os.listdir(self.path("out/checkpoint"))),
                         ["config.json", "model.safetensors"])
        self.assertEqual(os.listdir(self.path("nvme")), [])
        self.assertEqual(self.read("out/checkpoint/config.json"), self.read("tiny/config.json"))
        summary = json.loads(self.read("out/summary.json"))
        losses = self.losses()
        self.assertEqual(len(losses), 3)
        self.assertEqual(summary["steps"], 3)
        self.assertEqual([summary["loss_first"], summary["loss_last"]], [losses[0], losses[-1]])
        self.assertIs(summary["predicted_step_seconds"], None)
        self.assertGreater(summary["placement"]["nvme"]["moment1"], 0)
        self.assertLessEqual(summary["peaks"]["ram_bytes"], summary["budgets"]["ram_bytes"])
        # The lanes of the summary are what the lines add up to, and the last update.
        lines = [json.loads(line) for line in self.read("out/metrics.jsonl").splitlines()]
        self.assertGreaterEqual(summary["lanes"]["nvme_read"]["bytes"],
                                sum(line["nvme_read_bytes"] for line in lines))
        self.assertGreater(summary["lanes"]["nvme_write"]["bytes"], 0)
        events = json.loads(self.read("out/trace.json"))["traceEvents"]
        rows = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
        self.assertLessEqual({"nvme_read", "nvme_write", "h2d", "d2h", "compute", "cpu"}, rows)
        for part in ("budget", "predicted", "peak", "nvme_read", "bound by"):
            self.assertIn(part, process.stdout_text)
        self.assertRegex(process.stderr_text, r"(?m)^step 3/3 \| loss ")

    def test_json_on_stdout_is_the_summary(self):
        process = self.train("--json")
        self.assertEqual(process.returncode, 0, process.stderr_text)
        self.assertEqual(json.loads(process.stdout_text), json.loads(self.read("out/summary.json")))

    def test_a_second_run_replaces_the_first(self):
        self.assertEqual(self.train(steps=4).returncode, 0)
        self.assertEqual(self.train(steps=2).returncode, 0)
        self.assertEqual(len(self.losses()), 2)

    def test_spellings_are_one(self):
        first = self.train()
        second = self.marea("train", *[
            word.replace("--sequence-length", "--sequence_length").replace("--steps", "--max_steps")
            for word in self.run_flags()], "--output_dir", "again")
        self.assertEqual((first.returncode, second.returncode), (0, 0), second.stderr_text)
        self.assertEqual(self.losses(), self.losses("again"))

    def test_training_goes_on_from_its_checkpoint(self):
        self.assertEqual(self.train().returncode, 0)
        process = self.train(model="out/checkpoint", output="next")
        self.assertEqual(process.returncode, 0, process.stderr_text)
        self.assertLess(self.losses("next")[0], self.losses()[0])

    def test_evaluation_is_in_the_lines_asked_for(self):
        self.write("eval.txt", command_case.text_of(300, seed=2))
        process = self.train(steps=5, eval_data="eval.txt", eval_every=2)
        self.assertEqual(process.returncode, 0, process.stderr_text)
        lines = [json.loads(line) for line in self.read("out/metrics.jsonl").splitlines()]
        self.assertEqual([line["step"] for line in lines if "eval_loss" in line], [2, 4, 5])
        self.assertEqual(json.loads(self.read("out/summary.json"))["eval_loss_last"],
                         lines[-1]["eval_loss"])
        # To evaluate changes nothing.
        self.assertEqual(self.train(steps=5, output="plain").returncode, 0)
        self.assertEqual(self.losses(), self.losses("plain"))


class Signals(CommandCase):
    def long_run(self, output):
        process = self.start("train", *self.run_flags(config="offloaded.json", steps=100000,
                                                      output=output))
        self.addCleanup(lambda: process.poll() is None and process.kill())
        metrics = self.path(f"{output}/metrics.jsonl")
        wait_for(lambda: lines_in(metrics) >= 2 or process.poll() is not None, "the second step")
        return process

    def test_the_first_ends_after_the_step_with_all_files_whole(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number):
                output = f"stopped-{number}"
                process = self.long_run(output)
                process.send_signal(number)
                process.stdout_text, process.stderr_text = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 0, process.stderr_text)
                summary = json.loads(self.read(f"{output}/summary.json"))
                self.assertTrue(summary["interrupted"])
                losses = self.losses(output)
                self.assertEqual(summary["steps"], len(losses))
                self.assertLess(len(losses), 100000)
                self.assertEqual(os.listdir(self.path("nvme")), [])
                inspected = self.marea("inspect", f"{output}/checkpoint")
                self.assertEqual(inspected.returncode, 0, inspected.stderr_text)
                # As if that step had been the last.
                steps = len(losses)
                self.assertEqual(self.train(config="offloaded.json", steps=steps,
                                            output=f"whole-{number}").returncode, 0)
                self.assertEqual(self.read_bytes(f"{output}/checkpoint/model.safetensors"),
                                 self.read_bytes(f"whole-{number}/checkpoint/model.safetensors"))

    def test_the_second_ends_at_once_and_the_next_run_takes_over(self):
        process = self.long_run("out")
        # Both wait for a process that stands still: no race with the end of the step.
        process.send_signal(signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        process.communicate(timeout=20)
        self.assertIn(process.returncode, (128 + signal.SIGINT, 128 + signal.SIGTERM))
        self.assertFalse(os.path.exists(self.path("out/checkpoint/model.safetensors")))
        for line in self.read("out/metrics.jsonl").splitlines():
            json.loads(line)
        # What it left in its NVMe folder can be looked at, and is in no one's way.
        self.assertEqual(os.listdir(self.path("nvme")), ["marea.arena"])
        inspected = self.marea("inspect", "nvme/marea.arena")
        self.assertEqual(inspected.returncode, 0, inspected.stderr_text)
        self.assertIn("a run's file on NVMe", inspected.stdout_text)
        self.assertIn("nothing committed yet", inspected.stdout_text)
        after = self.train(config="offloaded.json", output="after")
        self.assertEqual(after.returncode, 0, after.stderr_text)
        self.assertEqual(os.listdir(self.path("nvme")), [])


def forbid_io_uring(error_number):
    """A seccomp filter, as container runtimes set it: io_uring's three calls fail."""
    def install():
        load, jump_equal, give = 0x20, 0x15, 0x06
        allow, fail = 0x7FFF0000, 0x00050000 | error_number
        program = [(load, 0, 0, 0)]
        for index, number in enumerate((425, 426, 427)):
            program.append((jump_equal, 3 - index, 0, number))
        program += [(give, 0, 0, allow), (give, 0, 0, fail)]
        code = b"".join(struct.pack("HBBI", *line) for line in program)
        buffer = ctypes.create_string_buffer(code)
        filter_program = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(buffer))
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(38, 1, 0, 0, 0) != 0:  # PR_SET_NO_NEW_PRIVS
            raise OSError(ctypes.get_errno(), "no_new_privs")
        if libc.prctl(22, 2, ctypes.create_string_buffer(filter_program), 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "seccomp")
    return install


def lock_little_memory():
    """8 MiB, the usual limit of a plain user; as root only what a plain user may."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0:
        libc.prctl(24, 14, 0, 0, 0)  # PR_CAPBSET_DROP CAP_IPC_LOCK: gone from execve on
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (8 << 20, 8 << 20))


class LesserMachines(CommandCase):
    def mode_of(self, output, preexec):
        process = self.train(config="offloaded.json", ram="1GiB", vram="64MiB", output=output,
                             options={"preexec_fn": preexec})
        self.assertEqual(process.returncode, 0, process.stderr_text)
        return json.loads(self.read(f"{output}/summary.json"))

    def test_where_io_uring_is_forbidden(self):
        self.assertEqual(self.train(config="offloaded.json", output="free").returncode, 0)
        for name, number in (("eperm", 1), ("enosys", 38)):
            summary = self.mode_of(name, forbid_io_uring(number))
            self.assertNotIn("io_uring", summary["io_mode"].split("(")[0])
            self.assertTrue(summary["io_mode_reason"])
            self.assertEqual(self.losses(name), self.losses("free"))

    def test_with_little_memory_to_lock(self):
        self.assertEqual(self.train(config="offloaded.json", output="free").returncode, 0)
        summary = self.mode_of("little", lock_little_memory)
        self.assertEqual(self.losses("little"), self.losses("free"))
        # Small arenas may fit in 8 MiB; where they do not, the mode says why.
        if "registered" not in summary["io_mode"]:
            self.assertIn("memlock", summary["io_mode_reason"] + summary["io_mode_remedy"])

    def test_report_says_so(self):
        process = self.marea("report", "--nvme", "nvme", preexec_fn=forbid_io_uring(1))
        self.assertEqual(process.returncode, 0, process.stderr_text)
        self.assertIn("what does not work", process.stdout_text)
        self.assertIn("io_uring", process.stdout_text)


class InspectAndReport(CommandCase):
    def test_inspect_knows_its_kinds(self):
        self.assertEqual(self.train().returncode, 0)
        for path, parts in [("tiny", ["GPT-2", "random"]), ("tiny/config.json", ["GPT-2"]),
                            ("out/checkpoint", ["GPT-2", "transformer.wte.weight", "BF16"]),
                            ("out/checkpoint/model.safetensors", ["[257, 64]", "safetensors"]),
                            ("out/plan.json", ["a plan of", "compute"])]:
            with self.subTest(path=path):
                process = self.marea("inspect", path)
                self.assertEqual(process.returncode, 0, process.stderr_text)
                for part in parts:
                    self.assertIn(part, process.stdout_text)

    def test_inspect_says_what_it_can_read(self):
        self.write("empty", "")
        self.write("zeros", b"\0" * 10000)
        self.write("other.json", '{"a": 1}')
        self.write("arena", b"MAREASB\n" + b"\x07" * 9000)
        for path, parts in [("text.txt", ["text.txt", "plan.json"]), ("empty", ["empty"]),
                            ("zeros", ["zeros"]), ("other.json", ["other.json", ".safetensors"]),
                            ("nowhere", ["nowhere"]), ("nvme", ["nvme", "config.json"]),
                            ("/dev/null", ["/dev/null"])]:
            with self.subTest(path=path):
                self.check_failure(self.marea("inspect", path), 2, parts)
        damaged = self.marea("inspect", "arena")
        self.check_failure(damaged, 2, ["arena", "version"])

    def test_a_damaged_plan_is_refused_with_its_place(self):
        process = self.marea("plan", *self.run_flags(), "--json")
        plan = json.loads(process.stdout_text)
        plan["ops"][5]["kind"] = "dance"
        self.write("plan.json", json.dumps(plan))
        self.check_failure(self.marea("inspect", "plan.json"), 2, ["plan.json", "ops[5]", "dance"])
        self.write("plan.json", process.stdout_text[:5000])
        self.check_failure(self.marea("inspect", "plan.json"), 2, ["plan.json"])

    def test_a_plan_over_several_paths_measures_none(self):
        os.mkdir(self.path("second"))
        before = self.tree()
        said = {}
        for paths in (["nvme"], ["nvme", "second"]):
            planned = self.marea("plan", *self.run_flags(config="offloaded.json", nvme=paths))
            self.assertEqual(planned.returncode, 0, planned.stderr_text)
            said[len(paths)] = "measured when training starts" in planned.stderr_text
        self.assertEqual(said, {1: False, 2: True})
        self.assertEqual(self.tree(), before)

    def test_report(self):
        before = self.tree()
        facts = json.loads(self.marea("report", "--json", "--nvme", "nvme").stdout_text)
        self.assertEqual(set(facts), {"versions", "cpu", "memory", "gpu", "io", "problems"})
        self.assertTrue(facts["versions"]["torch"].startswith("2."))
        self.assertEqual(facts["versions"]["kernel"], os.uname().release)
        self.assertGreaterEqual(facts["cpu"]["cores"], 1)
        self.assertTrue(facts["io"]["mode"])
        self.assertEqual(self.tree(), before)
        missing = self.marea("report", "--nvme", "nowhere")
        self.assertEqual(missing.returncode, 0, "a report reports what does not work")
        self.assertIn("nowhere", missing.stdout_text)

    def test_version_and_help(self):
        self.assertRegex(self.marea("--version").stdout_text, r"^marea \d+\.\d+\.\d+\n$")
        for command in ("train", "plan", "inspect", "report"):
            process = self.marea(command, "--help")
            self.assertEqual(process.returncode, 0)
            self.assertIn("--help", process.stdout_text)
            self.assertIn(command, self.marea("--help").stdout_text)

    def test_a_full_disk_behind_stdout_is_a_failure(self):
        with open("/dev/full", "w") as full:
            process = command_case.subprocess.run(
                [command_case.MAREA, "report", "--json"], cwd=self.folder, stdout=full,
                stderr=command_case.subprocess.PIPE, text=True)
        self.assertEqual(process.returncode, 1)
        self.assertIn("stdout", process.stderr)


if __name__ == "__main__":
    command_case.main(sys.argv)
