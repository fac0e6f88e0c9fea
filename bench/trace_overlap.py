"""How much of each lane's work a run hid behind computation, from its trace.json.

    trace_overlap.py TRACE [--turns FIRST:LAST] [--per-op LANE]

A line for each lane: seconds a turn in which it was busy, and in which it was busy while `compute`
was not: what the step would lose if the lane were free. --per-op lists the ops of a lane that were
bare, longest first, so that the first and last group can be told from the rest.
"""

import argparse
import json
import signal

COMPUTE = "compute"


def union(spans):
    """Spans that do not overlap, in order."""
    merged = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return merged


def bare(spans, covers):
    """Length of `spans` outside `covers`; both are unions."""
    total = sum(end - begin for begin, end in spans)
    at = 0
    for begin, end in spans:
        while at < len(covers) and covers[at][1] <= begin:
            at += 1
        for low, high in covers[at:]:
            if low >= end:
                break
            total -= min(end, high) - max(begin, low)
    return total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trace")
    parser.add_argument("--turns")
    parser.add_argument("--per-op", metavar="LANE")
    words = parser.parse_args()
    with open(words.trace) as file:
        events = json.load(file)["traceEvents"]
    lanes = {event["tid"]: event["args"]["name"] for event in events
             if event["name"] == "thread_name"}
    ops = [event for event in events if event["ph"] == "X"]
    turns = sorted({op["args"]["turn"] for op in ops})
    if words.turns:
        first, last = map(int, words.turns.split(":"))
        turns = [turn for turn in turns if first <= turn <= last]
    ops = [op for op in ops if op["args"]["turn"] in turns]
    spans = {}
    for op in ops:
        lane = lanes[op["tid"]].split()[0]
        spans.setdefault(lane, []).append((op["ts"], op["ts"] + op["dur"]))
    merged = {lane: union(each) for lane, each in spans.items()}
    count = len(turns)
    for lane, each in merged.items():
        busy = sum(end - begin for begin, end in each)
        alone = "" if lane == COMPUTE else f", bare {bare(each, merged[COMPUTE]) / count / 1e6:.4f}"
        print(f"{lane}: busy {busy / count / 1e6:.4f} s a turn{alone}")
    if words.per_op:
        chosen = [op for op in ops if lanes[op["tid"]].split()[0] == words.per_op]
        for op in chosen:
            op["bare"] = bare([(op["ts"], op["ts"] + op["dur"])], merged[COMPUTE])
        for op in sorted(chosen, key=lambda op: -op["bare"])[:20]:
            print(f"  {op['name']} {op['args']}: {op['dur'] / 1e3:.2f} ms, "
                  f"bare {op['bare'] / 1e3:.2f}")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as for `head`
    main()
