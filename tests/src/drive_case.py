"""Drives made for a test: file systems in a file, and a cgroup that limits a drive."""
import os
import subprocess

from bench_case import BenchCase
from command_case import wait_for


class MountCase(BenchCase):
    """Drives made of files, where mounting is allowed."""

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("only root may mount")

    def shell(self, *words):
        return subprocess.run(words, capture_output=True, text=True)

    def loop(self, name, mebibytes, *options):
        """An ext4 file system in a file, mounted at `name`."""
        os.mkdir(self.path(name))
        image = self.path(name + ".img")
        with open(image, "wb") as file:
            file.truncate(mebibytes << 20)
        made = self.shell("losetup", "--show", "-f", *options, image)
        device = made.stdout.strip()
        if made.returncode != 0:
            self.skipTest("no loop devices here")
        self.addCleanup(self.shell, "losetup", "-d", device)
        if self.shell("mkfs.ext4", "-q", device).returncode != 0 or \
                self.shell("mount", device, self.path(name)).returncode != 0:
            self.skipTest("no loop mounts here")
        self.addCleanup(self.shell, "umount", self.path(name))
        return device


class Throttle:
    """A cgroup that limits a drive's bytes a second, of either version."""

    def __init__(self, device_number):
        self.number = device_number
        self.version1 = os.path.exists("/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device")
        base = "/sys/fs/cgroup/blkio" if self.version1 else "/sys/fs/cgroup"
        self.folder = f"{base}/marea-bench-test-{os.getpid()}"

    def open(self):
        try:
            if not self.version1:
                with open("/sys/fs/cgroup/cgroup.subtree_control", "w") as file:
                    file.write("+io")
            os.mkdir(self.folder)
            self.set(1 << 40)
            return True
        except OSError:
            return False

    def set(self, rate, number=None):
        """Bytes a second, each way; 0: no limit. Another drive may be named by its number."""
        number = number or self.number
        if self.version1:
            for way in ("read", "write"):
                self.put(f"blkio.throttle.{way}_bps_device", f"{number} {rate}")
        else:
            limit = rate if rate else "max"
            self.put("io.max", f"{number} rbps={limit} wbps={limit}")

    def put(self, name, text):
        with open(f"{self.folder}/{name}", "w") as file:
            file.write(text)

    def enter(self):
        self.put("cgroup.procs", str(os.getpid()))

    def close(self):
        wait_for(lambda: self.gone(), "the cgroup to be empty", 20)

    def gone(self):
        try:
            os.rmdir(self.folder)
        except FileNotFoundError:
            pass
        except OSError:
            return False
        return True
