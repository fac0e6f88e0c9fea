"""trace.json of a real run obeys the Chrome Trace Event format, so that Perfetto and
chrome://tracing show it as meant.

    trace_schema_test.py MAREA WORK_FOLDER [unittest's arguments]

The rules are those of the format's description ("JSON Object Format", duration, complete and
metadata events) and what Perfetto's importer adds: it drops a slice that overlaps another of its
row without lying within it. Each rule is shown to fail on a trace that breaks it.
"""
import copy
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

MAREA = os.path.abspath(sys.argv[1])
WORK = os.path.abspath(sys.argv[2])
LANES = ("nvme_read", "nvme_write", "h2d", "d2h", "compute", "cpu", "comm")
METADATA = {"process_name": "name", "thread_name": "name", "thread_sort_index": "sort_index"}
NANOSECOND_US = 1e-3

MODEL = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 64, "n_layer": 3,
         "n_head": 4, "n_positions": 128, "vocab_size": 256, "tie_word_embeddings": True,
         "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
NVME = {"device": "nvme", "nvme_path": "nvme"}
CONFIG = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2,
          "bf16": {"enabled": True}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
          "zero_optimization": {"stage": 3, "offload_param": NVME, "offload_optimizer": NVME}}


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_id(value):
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def event_faults(event):
    """What is wrong with one event by itself."""
    if not isinstance(event, dict):
        return ["is no object"]
    faults = [f"{key} is {event.get(key)!r}" for key in ("pid", "tid") if not is_id(event.get(key))]
    if not (isinstance(event.get("name"), str) and event["name"]):
        faults.append("has no name")
    if not isinstance(event.get("args", {}), dict):
        faults.append("args is no object")
    if event.get("ph") == "M":
        key = METADATA.get(event.get("name"))
        kind = int if key == "sort_index" else str
        if key is None or not isinstance(event.get("args", {}).get(key), kind):
            faults.append("is no metadata of a known kind")
    elif event.get("ph") == "X":
        for key in ("ts", "dur"):
            if not is_number(event.get(key)) or not 0 <= event[key] < float("inf"):
                faults.append(f"{key} is {event.get(key)!r}")
        if not isinstance(event.get("cat"), str):
            faults.append("has no category")
    else:
        faults.append(f"ph is {event.get('ph')!r}")
    return faults


def row_faults(row, events):
    """Spans of a row come in order of their begin, and lie apart or one within the other."""
    faults, open_ends, last = [], [], 0.0
    for event in events:
        begin, end = event["ts"], event["ts"] + event["dur"]
        if begin < last:
            faults.append(f"row {row}: {event['name']} at {begin} comes after one at {last}")
        last = begin
        while open_ends and open_ends[-1] <= begin + NANOSECOND_US:
            open_ends.pop()
        if open_ends and end > open_ends[-1] + NANOSECOND_US:
            faults.append(f"row {row}: {event['name']} at {begin} overlaps what began before it")
        open_ends.append(end)
    return faults


def trace_faults(trace):
    if not (isinstance(trace, dict) and isinstance(trace.get("traceEvents"), list)):
        return ["is no object with a list traceEvents"]
    faults = []
    if trace.get("displayTimeUnit", "ms") not in ("ms", "ns"):
        faults.append("displayTimeUnit is neither ms nor ns")
    rows, names = {}, {}
    for index, event in enumerate(trace["traceEvents"]):
        wrong = event_faults(event)
        faults += [f"event {index} {each}" for each in wrong]
        if wrong:
            continue
        row = (event["pid"], event["tid"])
        if event["ph"] == "X":
            rows.setdefault(row, []).append(event)
        elif event["name"] == "thread_name":
            if row in names:
                faults.append(f"row {row} has two names")
            names[row] = event["args"]["name"]
    for row, events in rows.items():
        if row not in names:
            faults.append(f"row {row} has no name")
        faults += row_faults(row, events)
    faults += [f"the name {name} is used twice" for name in set(names.values())
               if list(names.values()).count(name) > 1]
    faults += [f"row {row} is empty" for row in names.keys() - rows.keys()]
    return faults


class TraceSchema(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.makedirs(WORK, exist_ok=True)
        folder = tempfile.mkdtemp(prefix="trace-", dir=WORK)
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        os.mkdir(os.path.join(folder, "nvme"))
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(MODEL, file)
        with open(os.path.join(folder, "ds.json"), "w") as file:
            json.dump(CONFIG, file)
        with open(os.path.join(folder, "text.txt"), "w") as file:
            file.write("the tide comes in, the tide goes out. " * 500)
        subprocess.run(
            [MAREA, "train", "--model", "config.json", "--data", "text.txt", "--config", "ds.json",
             "--output", "out", "--device", "cpu", "--sequence-length", "64", "--steps", "4",
             "--threads", "1", "--vram", "32MiB", "--ram", "700MiB"],
            cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=120)
        with open(os.path.join(folder, "out/trace.json")) as file:
            cls.trace = json.load(file)
        with open(os.path.join(folder, "out/plan.json")) as file:
            cls.plan = json.load(file)

    def spans(self):
        return [event for event in self.trace["traceEvents"] if event["ph"] == "X"]

    def test_a_real_run_obeys_the_format(self):
        self.assertEqual(trace_faults(self.trace), [])

    def test_every_lane_has_its_rows(self):
        names = {event["tid"]: event["args"]["name"] for event in self.trace["traceEvents"]
                 if event["name"] == "thread_name"}
        lanes = {name.split(" ")[0] for name in names.values()}
        self.assertEqual(lanes, {op["lane"] for op in self.plan["ops"]})
        self.assertLessEqual(lanes, set(LANES))
        for event in self.spans():
            op = self.plan["ops"][event["args"]["op"]]
            self.assertEqual(names[event["tid"]].split(" ")[0], op["lane"])
            self.assertEqual(event["cat"], op["kind"])
        for lane, depth in self.plan["lane_depth"].items():
            rows = [name for name in names.values() if name.split(" ")[0] == lane]
            self.assertLessEqual(len(rows), depth, lane)

    def test_every_op_of_a_recorded_turn_is_there_once(self):
        seen = [(event["args"]["turn"], event["args"]["op"]) for event in self.spans()]
        self.assertEqual(len(seen), len(set(seen)))
        # A turn in the middle both updates and trains: all ops but those of evaluation run.
        expected = {index for index, op in enumerate(self.plan["ops"])
                    if op.get("when", "always") != "if_eval"}
        self.assertEqual({op for turn, op in seen if turn == 2}, expected)

    def test_what_breaks_a_rule_is_found(self):
        def broken(change):
            trace = copy.deepcopy(self.trace)
            change(trace, [event for event in trace["traceEvents"] if event["ph"] == "X"])
            return "\n".join(trace_faults(trace))

        def swap(trace, spans):
            row = [event for event in spans if event["tid"] == spans[0]["tid"]]
            row[0]["ts"], row[1]["ts"] = row[1]["ts"], row[0]["ts"]

        def overlap(trace, spans):
            row = [event for event in spans if event["tid"] == spans[0]["tid"]]
            row[0]["dur"] = row[1]["ts"] - row[0]["ts"] + row[1]["dur"] / 2

        def drop_name(trace, spans):
            trace["traceEvents"] = [event for event in trace["traceEvents"]
                                    if event["ph"] == "X" or event["tid"] != spans[0]["tid"]]

        for change, part in [
                (lambda trace, spans: spans[3].update(dur=-1.0), "dur is -1.0"),
                (lambda trace, spans: spans[3].update(ts=None), "ts is None"),
                (lambda trace, spans: spans[3].update(ph="B"), "ph is 'B'"),
                (lambda trace, spans: spans[3].update(tid="cpu"), "tid is 'cpu'"),
                (lambda trace, spans: spans[3].pop("pid"), "pid is None"),
                (lambda trace, spans: spans[3].update(name=""), "has no name"),
                (lambda trace, spans: trace["traceEvents"][0].update(args={}), "metadata"),
                (swap, "comes after"), (overlap, "overlaps"), (drop_name, "has no name")]:
            with self.subTest(part=part):
                self.assertIn(part, broken(change))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
