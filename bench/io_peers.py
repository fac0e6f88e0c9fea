"""What io_peers.sh reads from each peer's output, and the table that it prints.

    io_peers.py read PEER FILE       lines "PEER WORKLOAD GB/s core-ms/GB" of what PEER printed
    io_peers.py table FILE PEER...   the medians of such lines, and the first peer's ratio to each
"""
import json
import re
import statistics
import sys

WORKLOADS = ("read", "write", "mixed")


def of_marea(text):
    for result in json.loads(text)["results"]:
        yield result["workload"], result["gb_per_second"], result["cpu_core_ms_per_gb"]


def of_fio(text):
    root = json.loads(text[text.index("{"):])  # notes may come first
    job = root["jobs"][0]
    kind = {"rw": "mixed"}.get(job["job options"]["rw"], job["job options"]["rw"])
    gigabytes = (job["read"]["bw_bytes"] + job["write"]["bw_bytes"]) / 1e9
    yield kind, gigabytes, (job["usr_cpu"] + job["sys_cpu"]) * 10 / gigabytes


def of_ds_io(text):
    """Its GB are 2^30 bytes; a loop's own time counts, without the file's opening."""
    found = re.search(r"Task (Read|Write) Speed = ([0-9.e+-]+) GB/sec", text)
    if found is None:
        sys.exit(f"io_peers: ds_io gave no figure: {text.strip().splitlines()[-1:]}")
    yield found[1].lower(), float(found[2]) * 2**30 / 1e9, None


READERS = {"marea": of_marea, "threads": of_marea, "fio": of_fio, "ds_io": of_ds_io}


def read(peer, path):
    with open(path) as file:
        for kind, rate, cpu in READERS[peer](file.read()):
            print(peer, kind, rate, "-" if cpu is None else cpu)


def table(path, peers):
    runs = {}
    with open(path) as file:
        for line in file:
            peer, kind, rate, cpu = line.split()
            rates, times = runs.setdefault((peer, kind), ([], []))
            rates.append(float(rate))
            if cpu != "-":
                times.append(float(cpu))
    print(f"{'':8} {'':6} {'GB/s':>6} {'lowest':>7} {'highest':>8} {'core-ms/GB':>11}  "
          f"{peers[0]} / it")
    for kind in WORKLOADS:
        own = statistics.median(runs[peers[0], kind][0])
        for peer in peers:
            if (peer, kind) not in runs:
                continue
            rates, times = runs[peer, kind]
            rate = statistics.median(rates)
            cpu = f"{statistics.median(times):.1f}" if times else "-"
            print(f"{peer:8} {kind:6} {rate:6.2f} {min(rates):7.2f} {max(rates):8.2f} {cpu:>11}  "
                  f"{own / rate:.2f}")


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "read" and sys.argv[2] in READERS:
        read(sys.argv[2], sys.argv[3])
    elif len(sys.argv) >= 4 and sys.argv[1] == "table":
        table(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(__doc__)
