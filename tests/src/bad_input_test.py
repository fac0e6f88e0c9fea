"""Wrong input: one sentence that names file, key or flag, exit 2 or 3, nothing left behind."""
import fcntl
import json
import os
import sys
import unittest

import command_case
from command_case import CommandCase, DEEPSPEED, OFFLOADED, TINY_GPT2


class BadFlags(CommandCase):
    def test_flags(self):
        cases = [
            (2, ["--stesp", "--steps"], ["--stesp", "3"]),
            (2, ["--checkpoint-every", "nearest"], ["--checkpoint-every", "3"]),
            (2, ["--steps", "0"], ["--steps=0"]),
        ]
        for status, parts, extra in cases:
            with self.subTest(extra=extra):
                self.refuses(status, parts, *extra, steps=None)
        self.refuses(2, ["--steps and --epochs"], steps=3, epochs=1)
        self.refuses(2, ["--eval-every", "--eval-data"], eval_every=2)
        self.refuses(2, ["nowhere.txt"], eval_data="nowhere.txt")

    def test_commands(self):
        for words, parts in [(["trian"], ["'trian'", "train"]), ([], ["which command"]),
                             (["train"], ["--model DIR", "--data FILE", "--output DIR"]),
                             (["plan", "--output", "x"], ["--model DIR", "--data FILE"]),
                             (["inspect"], ["which path"]),
                             (["report", "extra"], ["'extra'"])]:
            with self.subTest(words=words):
                self.check_failure(self.marea(*words), 2, parts)

    def test_device(self):
        self.refuses(2, ["--device cuda", "--device cpu"], device="cuda")
        self.refuses(2, ["--device tpu", "cuda or cpu"], device="tpu")

    def test_sequence_length(self):
        self.refuses(2, ["sequence", "128"], sequence_length=4096)

    def test_output(self):
        self.write("file", "x")
        self.refuses(2, ["--output", "file"], output="file")
        self.refuses(2, ["--output", "file/below"], output="file/below")
        self.refuses(2, ["--output"], output="/sys/marea")


class BadBudgets(CommandCase):
    def test_too_small(self):
        self.refuses(3, ["--vram"], vram="64KiB")
        self.refuses(3, ["--ram"], ram="20MiB")
        self.refuses(3, ["--ram"], vram="700MiB", ram="64MiB", nvme="nvme")
        self.refuses(3, ["nvme"], nvme="nvme:8KiB", config="offloaded.json")

    def test_sizes(self):
        self.refuses(2, ["--ram", "lots"], ram="lots")
        self.refuses(2, ["--vram", "-1GiB"], vram="-1GiB")
        self.refuses(2, ["--ram 0%"], ram="0%")
        self.refuses(2, ["--nvme", "8Qs"], nvme="nvme:8Qs")


class BadNvmePaths(CommandCase):
    def offloaded(self, path):
        config = json.loads(json.dumps(OFFLOADED))
        for section in ("offload_param", "offload_optimizer"):
            if path is None:
                del config["zero_optimization"][section]["nvme_path"]
            else:
                config["zero_optimization"][section]["nvme_path"] = path
        self.write("case.json", json.dumps(config))
        return "case.json"

    def test_flag(self):
        self.refuses(2, ["nowhere", "does not exist"], nvme="nowhere")
        self.refuses(2, ["text.txt"], nvme="text.txt")
        self.refuses(2, ["--nvme", "folder is missing"], nvme=":8GiB")
        self.refuses(2, ["the same folder"], nvme=["nvme", "./nvme"])

    def test_is_found_before_the_data_is_read(self):
        """Data may take minutes to scan: what can be known without it comes first."""
        self.write("latin.txt", b"caf\xe9 " * 200)
        self.refuses(2, ["latin.txt"], data="latin.txt", nvme="nvme")
        for model in ("tiny", "no-model"):
            wrong = {"model": model, "data": "latin.txt", "eval_data": "latin.txt"}
            with self.subTest(model=model):
                self.refuses(2, ["nowhere"], nvme="nowhere", **wrong)
                self.refuses(3, ["nvme", "free"], nvme="nvme:900TB", **wrong)
                self.refuses(2, ["nvme_path", "nowhere"], config=self.offloaded("nowhere"), **wrong)
                self.refuses(2, ["--steps and --epochs"], steps=3, epochs=1, **wrong)
                self.refuses(2, ["--steps", "1 or more"], steps=0, **wrong)

    def test_read_only(self):
        # /sys takes no files from anyone, root included.
        self.refuses(2, ["/sys"], nvme="/sys")
        if os.geteuid() != 0:
            os.chmod(self.path("nvme"), 0o555)
            self.refuses(2, ["nvme", "writ"], nvme="nvme")

    @unittest.skipUnless(os.path.ismount("/dev/shm"), "there is no tmpfs to be refused")
    def test_tmpfs(self):
        self.refuses(2, ["/dev/shm", "tmpfs"], nvme="/dev/shm")

    def test_full(self):
        self.refuses(3, ["nvme", "free"], nvme="nvme:900TB")

    def test_held_by_another_run(self):
        self.write("nvme/marea.arena", "")
        with open(self.path("nvme/marea.arena"), "r+b") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            self.refuses(2, ["marea.arena"], config="offloaded.json")
        self.assertEqual(self.train(config="offloaded.json").returncode, 0)

    def test_config(self):
        for path, parts in [(None, ["nvme_path"]), ("", ["nvme_path"]), ("auto", ["nvme_path"]),
                            ("nowhere", ["nowhere"]), ("text.txt", ["text.txt"]),
                            (7, ["nvme_path"])]:
            with self.subTest(path=path):
                self.refuses(2, parts, config=self.offloaded(path))
        config = json.loads(self.read(self.offloaded("")))
        config["zero_optimization"]["offload_param"]["nvme_path"] = None
        self.write("case.json", json.dumps(config))
        self.refuses(2, ["nvme_path"], config="case.json")
        # --nvme replaces what the file says.
        process = self.train(config=self.offloaded("nowhere"), nvme="nvme")
        self.assertEqual(process.returncode, 0, process.stderr_text)


class BadModels(CommandCase):
    def test_files(self):
        self.refuses(2, ["nowhere"], model="nowhere")
        os.mkdir(self.path("empty"))
        self.refuses(2, ["empty", "config.json"], model="empty")
        self.refuses(2, ["text.txt"], model="text.txt")

    def test_configs(self):
        cases = [
            ({"model_type": "mamba", "architectures": ["MambaForCausalLM"]}, ["mamba"]),
            ({"n_head": 5}, ["n_head", "5"]),
            ({"n_layer": 0}, ["n_layer"]),
            ({"n_embd": -64}, ["n_embd"]),
            ({"n_embd": "wide"}, ["n_embd"]),
            ({"vocab_size": 0}, ["vocab_size"]),
            ({"n_embd": 10**12}, ["n_embd"]),
            ({"activation_function": "tanh"}, ["activation_function"]),
        ]
        for change, parts in cases:
            with self.subTest(change=change):
                self.write("case/config.json", json.dumps({**TINY_GPT2, **change}))
                self.refuses(2, ["case/config.json", *parts], model="case")

    def test_malformed(self):
        for text in ["", "{", "[]", '{"n_layer": 2,}', "// no\n{}", "\x00\x01", '{"a": 1, "a": 2}',
                     "{}", "null", "[" * 3000]:
            with self.subTest(text=text[:20]):
                self.write("case/config.json", text)
                self.refuses(2, ["case/config.json"], model="case")

    def test_weights(self):
        for content in [b"", b"\x08\x00\x00\x00\x00\x00\x00\x00{}      ",
                        b"version https://git-lfs.github.com/spec/v1\n", b"\xff" * 64]:
            with self.subTest(content=content[:10]):
                self.write("case/config.json", json.dumps(TINY_GPT2))
                self.write("case/model.safetensors", content)
                self.refuses(2, ["case/model.safetensors"], model="case")


class BadConfigs(CommandCase):
    def test_malformed(self):
        for text in ["", "{", '{"bf16": {"enabled": tru}}', "[1]", '{"bf16": {}, "bf16": {}}']:
            with self.subTest(text=text):
                self.write("case.json", text)
                self.refuses(2, ["case.json"], config="case.json")
        self.refuses(2, ["nowhere.json"], config="nowhere.json")
        self.refuses(2, ["nvme"], config="nvme")

    def test_keys(self):
        cases = [
            ({"zero_optimization": {"stgae": 3}}, ["stgae", "stage"]),
            ({"zero_optimization": {"stage": 7}}, ["stage"]),
            ({"zero_optimization": {"aio": {"block_size": 4096}}}, ["aio"]),
            ({"zero_optimization": {"offload_param": {"device": "disk"}}}, ["device", "disk"]),
            ({"zero_optimization": {"reduce_bucket_size": -1}}, ["reduce_bucket_size"]),
            ({"fp16": {"enabled": True}, "bf16": {"enabled": False}}, ["fp16", "bf16"]),
            ({"optimizer": {"type": "Lion"}}, ["Lion"]),
            ({"optimizer": {"type": "AdamW", "params": {"lr": "fast"}}}, ["lr"]),
            ({"optimizer": {"type": "AdamW", "params": {"betas": [0.9]}}}, ["betas"]),
            ({"scheduler": {"type": "StepLR"}}, ["StepLR"]),
            ({"gradient_clipping": -1}, ["gradient_clipping"]),
            ({"train_micro_batch_size_per_gpu": 0}, ["train_micro_batch_size_per_gpu"]),
        ]
        for change, parts in cases:
            with self.subTest(change=change):
                self.write("case.json", json.dumps({**DEEPSPEED, **change}))
                self.refuses(2, ["case.json", *parts], config="case.json")

    def test_contradictory_batch_triple(self):
        self.write("case.json", json.dumps({**DEEPSPEED, "train_batch_size": 5}))
        self.refuses(2, ["case.json", "train_batch_size", "5"], config="case.json")

    def test_an_unknown_key_at_the_top_is_a_warning(self):
        self.write("case.json", json.dumps({**DEEPSPEED, "my_notes": {"run": 7}}))
        process = self.train(config="case.json")
        self.assertEqual(process.returncode, 0, process.stderr_text)
        self.assertRegex(process.stderr_text, "(?m)^marea: warning: .*my_notes")


class BadData(CommandCase):
    def test_files(self):
        self.refuses(2, ["nowhere.txt"], data="nowhere.txt")
        self.write("empty.txt", "")
        self.refuses(2, ["empty.txt"], data="empty.txt")
        self.write("short.txt", "too short for 64 tokens")
        self.refuses(2, ["short.txt", "64"], data="short.txt")
        self.write("latin.txt", b"caf\xe9 " * 200)
        self.refuses(2, ["latin.txt"], data="latin.txt")
        self.write("odd.bin", b"\x01\x00" * 500 + b"\x01")
        self.refuses(2, ["odd.bin"], data="odd.bin")
        self.write("large.bin", b"\x01\x00" * 300 + b"\xff\xff" + b"\x01\x00" * 300)
        self.refuses(2, ["large.bin", "65535"], data="large.bin")
        os.mkdir(self.path("no-files"))
        self.refuses(2, ["no-files"], data="no-files")


if __name__ == "__main__":
    command_case.main(sys.argv)
