"""What the tests of the command line share: fixtures, a runner, and what every failure promises."""
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

MAREA = ""  # path of the program; set by main()
WORK = ""  # a folder on a real file system; set by main()

TINY_GPT2 = {
    "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 64, "n_layer": 3,
    "n_head": 4, "n_positions": 128, "vocab_size": 257, "tie_word_embeddings": True,
    "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
DEEPSPEED = {
    "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2,
    "bf16": {"enabled": True}, "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
OFFLOADED = {
    **DEEPSPEED,
    "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "nvme"},
                          "offload_optimizer": {"device": "nvme", "nvme_path": "nvme"}}}
# Nothing of a library's or the language's own way of failing may reach the user.
RAW_FAILURES = ("terminate", "what()", "Aborted", "Segmentation", "c10::", "std::", "[json.",
                "Traceback", "check failed")
SECONDS_MAX = 20  # of a refusal; "in seconds", on a machine that runs other tests too


def text_of(words, seed=1):
    chosen = random.Random(seed)
    return " ".join(chosen.choice(["sea", "tide", "wave", "moon", "shore"]) for _ in range(words))


class CommandCase(unittest.TestCase):
    """A test in a folder of its own that holds a tiny model, data and configs."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="case-", dir=WORK)
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.write("tiny/config.json", json.dumps(TINY_GPT2))
        self.write("text.txt", text_of(4000))
        self.write("ds.json", json.dumps(DEEPSPEED))
        self.write("offloaded.json", json.dumps(OFFLOADED))
        os.mkdir(self.path("nvme"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, content):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "wb" if isinstance(content, bytes) else "w") as file:
            file.write(content)

    def read(self, name):
        with open(self.path(name)) as file:
            return file.read()

    def read_bytes(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def start(self, *arguments, **options):
        return subprocess.Popen([MAREA, *arguments], cwd=self.folder, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, **options)

    def marea(self, *arguments, timeout=120, **options):
        process = self.start(*arguments, **options)
        try:
            process.stdout_text, process.stderr_text = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            self.fail(f"hangs: marea {' '.join(arguments)}")
        return process

    def run_flags(self, **changes):
        """The words of a small run; a change of None leaves a flag out, a list repeats it."""
        flags = {"model": "tiny", "data": "text.txt", "config": "ds.json",
                 "sequence-length": "64", "steps": "3", "threads": "1", "vram": "32MiB",
                 "ram": "700MiB", **{k.replace("_", "-"): v for k, v in changes.items()}}
        words = []
        for name, value in flags.items():
            for each in value if isinstance(value, list) else [value]:
                if each is not None:
                    words += [f"--{name}", str(each)]
        return words

    def train(self, *extra, options=None, **changes):
        changes.setdefault("output", "out")
        return self.marea("train", *self.run_flags(**changes), *extra, **(options or {}))

    def losses(self, output="out"):
        return [json.loads(line)["loss"] for line in
                self.read(f"{output}/metrics.jsonl").splitlines()]

    def tree(self):
        """Every file with its bytes' size and time: what a refusal may not change."""
        entries = {}
        for where, folders, files in os.walk(self.folder):
            for name in files:
                info = os.stat(os.path.join(where, name))
                entries[os.path.join(where, name)] = (info.st_size, info.st_mtime_ns)
            for name in folders:
                entries[os.path.join(where, name)] = None
        return entries

    def check_failure(self, process, status, parts):
        """One sentence on stderr, the status asked for, nothing on stdout."""
        stderr = process.stderr_text
        self.assertEqual(process.returncode, status, stderr)
        self.assertEqual(process.stdout_text, "")
        sentences = [line for line in stderr.splitlines() if line.startswith("marea: ")
                     and not line.startswith(("marea: note: ", "marea: warning: "))]
        self.assertEqual(len(sentences), 1, stderr)
        self.assertEqual(stderr.splitlines()[-1], sentences[0], stderr)
        for part in parts if isinstance(parts, (list, tuple)) else [parts]:
            self.assertIn(part, sentences[0])
        for raw in RAW_FAILURES:
            self.assertNotIn(raw, stderr)
        self.assertLess(len(sentences[0]), 600)

    def refuses(self, status, parts, *extra, options=None, **changes):
        """`train` refuses these flags in seconds and leaves nothing behind."""
        before = self.tree()
        began = time.monotonic()
        process = self.train(*extra, options=options, **changes)
        self.assertLess(time.monotonic() - began, SECONDS_MAX)
        self.check_failure(process, status, parts)
        self.assertEqual(self.tree(), before)


def state_of(pid):
    """The letter of /proc; X where there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "X"


def is_gone(pid):
    """Ended; a zombie of a parent that is gone, too, counts."""
    return state_of(pid) in "ZX"


def wait_for(condition, what, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited in vain for {what}")
        time.sleep(0.02)


def lines_in(path):
    try:
        with open(path) as file:
            return file.read().count("\n")
    except FileNotFoundError:
        return 0


def main(arguments):
    """TEST.py MAREA WORK_FOLDER [unittest's arguments]"""
    global MAREA, WORK
    MAREA, WORK = os.path.abspath(arguments[1]), os.path.abspath(arguments[2])
    os.makedirs(WORK, exist_ok=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    unittest.main(module="__main__", argv=[arguments[0], *arguments[3:]])
