"""What NCCL alone gives at a size: the figure that a run's collectives are held against.

    torchrun --nproc-per-node=N nccl_loop.py [--repeats R] MIB...

Each MIB is the size of the whole: what an all-gather (bf16) leaves on every rank, and what a
reduce-scatter (fp32) takes from each. They run in place on one stream, R times (20) after a first
one. A line gives the median and the bytes that arrive at a rank a second. NCCL_ALGO and
NCCL_P2P_DISABLE apply.
"""

import argparse
import os
import statistics

import torch
import torch.distributed as dist


def median_seconds(collective, repeats):
    collective()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    events[0].record()
    for event in events[1:]:
        collective()
        event.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in zip(events, events[1:])) / 1e3


def measure(name, mib, repeats):
    rank, world = dist.get_rank(), dist.get_world_size()
    dtype = torch.bfloat16 if name == "all-gather" else torch.float32
    whole = torch.zeros((mib << 20) // dtype.itemsize // world * world, dtype=dtype, device="cuda")
    part = whole.chunk(world)[rank]
    if name == "all-gather":
        seconds = median_seconds(lambda: dist.all_gather_into_tensor(whole, part), repeats)
    else:
        seconds = median_seconds(lambda: dist.reduce_scatter_tensor(part, whole), repeats)
    if rank == 0:
        arriving = whole.nbytes * (world - 1) / world
        print(f"{name} of {mib} MiB: {seconds * 1e3:.3f} ms, {arriving / seconds / 1e9:.1f} GB/s",
              flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("sizes", nargs="+", type=int, metavar="MIB")
    words = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    for mib in words.sizes:
        for name in ("all-gather", "reduce-scatter"):
            measure(name, mib, words.repeats)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
