"""What a rank is started with, on the CPU and on GPUs.

MAREA_TEST_DEVICE=cuda makes tests of several ranks compute on GPUs. Where there are fewer than
ranks, some share one: NCCL refuses that on one machine, so each rank tells it of a machine of its
own (NCCL_HOSTID), and they talk through sockets. That shows what is computed, not how fast.
"""

import functools
import os
import socket
import subprocess

DEVICE = os.environ.get("MAREA_TEST_DEVICE", "cpu")
# Budgets that a tiny model does not fill; on a GPU CUDA and NCCL take most of them.
VRAM, RAM = ("64MiB", "4GiB") if DEVICE == "cpu" else ("3GiB", "48GiB")


@functools.cache
def gpu_count():
    if DEVICE == "cpu":
        return 0
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


def shares_gpus(world):
    return DEVICE == "cuda" and gpu_count() < world


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def rank_environment(rank, world, port):
    """As torchrun sets it."""
    variables = {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank),
                 "LOCAL_WORLD_SIZE": str(world), "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": str(port)}
    if shares_gpus(world):
        variables |= {"CUDA_VISIBLE_DEVICES": str(rank % gpu_count()),
                      "NCCL_HOSTID": f"machine-{rank}", "NCCL_SOCKET_IFNAME": "lo"}
    return variables
