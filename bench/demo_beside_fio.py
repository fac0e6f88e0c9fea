"""What demo_beside_fio.sh reads from a run, and the table that it prints.

    demo_beside_fio.py shape RUN            request bytes, depth, % of reads, bytes of the file
    demo_beside_fio.py table FOLDER ROUNDS  each round and the medians, in MB/s
"""
import json
import statistics
import sys

REQUEST_BYTES_MAX = 1 << 20  # the device cuts larger transfers into pieces of this size
QUEUE_DEPTH_MAX = 32  # and keeps at most so many of them in flight
PAGE_BYTES = 4096


def load(path):
    with open(path) as file:
        return json.load(file)


def shape(run):
    summary, plan = load(f"{run}/summary.json"), load(f"{run}/plan.json")
    read, write = (summary["lanes"][lane] for lane in ("nvme_read", "nvme_write"))
    op_bytes = (read["bytes"] + write["bytes"]) / (read["op_count"] + write["op_count"])
    pieces = max(1, round(op_bytes / REQUEST_BYTES_MAX))
    request = max(PAGE_BYTES, int(op_bytes / pieces) // PAGE_BYTES * PAGE_BYTES)
    depth = min(QUEUE_DEPTH_MAX, pieces * max(plan["lane_depth"]["nvme_read"],
                                              plan["lane_depth"]["nvme_write"]))
    share = round(100 * read["bytes"] / (read["bytes"] + write["bytes"]))
    file_bytes = max(summary["peaks"]["nvme_bytes"] // (1 << 20) << 20, 64 << 20)
    return min(request, REQUEST_BYTES_MAX), depth, share, file_bytes


def rates(folder, number):
    """Column -> MB/s of one round."""
    lanes = load(f"{folder}/{number}-demo.json")["lanes"]
    row = {f"demo {kind}": lanes[f"nvme_{kind}"]["bytes_per_busy_second"] / 1e6
           for kind in ("read", "write")}
    for name, kinds in (("read", ["read"]), ("write", ["write"]), ("mixed", ["read", "write"])):
        job = load(f"{folder}/{number}-{name}.json")["jobs"][0]
        for kind in kinds:
            label = f"fio {kind}" + (", mixed" if name == "mixed" else "")
            row[label] = job[kind]["bw_bytes"] / 1e6
    return row


def table(folder, rounds):
    rows = [rates(folder, number) for number in range(1, rounds + 1)]
    columns = ["demo read", "fio read", "fio read, mixed",
               "demo write", "fio write", "fio write, mixed"]
    print("MB/s      " + "".join(f"{column:>18}" for column in columns))
    for number, row in enumerate(rows, 1):
        print(f"round {number:<4}" + "".join(f"{row[column]:>18.0f}" for column in columns))
    medians = {column: statistics.median(row[column] for row in rows) for column in columns}
    print("median    " + "".join(f"{medians[column]:>18.0f}" for column in columns))


if __name__ == "__main__":
    if sys.argv[1] == "shape":
        print(*shape(sys.argv[2]))
    else:
        table(sys.argv[2], int(sys.argv[3]))
