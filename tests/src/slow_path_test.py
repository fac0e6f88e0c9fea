"""`marea train` over two real file systems, one of them limited: shares, and a drive that slows."""
import json
import os
import re
import signal
import subprocess
import sys

import command_case
import drive_case
from command_case import wait_for

RATE = r"([\d.]+) ([kMG])B/s"
UNITS = {"k": 1e3, "M": 1e6, "G": 1e9}
QUICK, SLOW, SLOWER = 40_000_000, 20_000_000, 2_000_000  # bytes a second, each way


class SlowPath(drive_case.MountCase):
    def setUp(self):
        super().setUp()
        self.quick, self.slow = (self.number(self.loop(name, 256)) for name in ("quick", "slow"))
        self.throttle = drive_case.Throttle(self.slow)
        if not self.throttle.open():
            self.skipTest("no cgroup that limits a drive here")
        self.addCleanup(self.throttle.close)

    def number(self, device):
        number = os.stat(device).st_rdev
        return f"{os.major(number)}:{os.minor(number)}"

    def start_training(self):
        flags = self.run_flags(config="offloaded.json", nvme=["quick", "slow"], steps=1_000_000,
                               output="out")
        self.log = open(self.path("stderr"), "w+")
        self.addCleanup(self.log.close)
        process = subprocess.Popen(
            [command_case.MAREA, "train", *flags], cwd=self.folder, stderr=self.log,
            stdout=self.log, preexec_fn=self.throttle.enter)
        self.addCleanup(lambda: (process.kill(), process.wait()))
        return process

    def await_text(self, process, pattern):
        def found():
            self.assertIs(process.poll(), None, self.read("stderr"))
            return re.search(pattern, self.read("stderr"))
        wait_for(found, pattern, 180)
        return found()

    def moved(self):
        """Bytes read, or written if those are fewer, from the second step on."""
        if not os.path.exists(self.path("out/metrics.jsonl")):
            return 0
        lines = [json.loads(line) for line in
                 self.read("out/metrics.jsonl").splitlines(keepends=True)[1:]
                 if line.endswith("\n")]
        return min(sum(line[f"nvme_{way}_bytes"] for line in lines) for way in ("read", "write"))

    def test_shares_follow_speed_and_a_slow_path_is_named(self):
        self.throttle.set(QUICK, self.quick)
        self.throttle.set(SLOW, self.slow)
        process = self.start_training()
        notice = self.await_text(
            process, rf"quick reads {RATE} and writes {RATE}, slow reads {RATE} and writes {RATE}: "
                     r"chunks are shared (\d+):(\d+)")
        words = notice.groups()
        rates = [float(words[i]) * UNITS[words[i + 1]] for i in range(0, 8, 2)]
        # The kernel keeps the limit; how much slower a busy machine is decides nothing here.
        self.assertLess(max(rates[2:]), 1.25 * SLOW)
        paging = [1 / (1 / rates[i] + 1 / rates[i + 1]) for i in (0, 2)]
        # As near as the chunks of a tiny model allow.
        self.assertAlmostEqual(int(words[8]), 100 * paging[0] / sum(paging), delta=10)
        # The limit lets bursts pass, so in busy time the drive is faster; enough for a window.
        share = int(words[9]) / 100
        wait_for(lambda: self.moved() * share > 15 * SLOW, "the rate at the start", 300)
        self.throttle.set(SLOWER, self.slow)
        named = self.await_text(
            process, rf"warning: NVMe path slow (reads|writes) {RATE} now, {RATE} at the start: "
                     r"the run (waits for it|does not)")
        words = named.groups()
        now, before = (float(words[i]) * UNITS[words[i + 1]] for i in (1, 3))
        self.assertLess(2 * now, before)
        self.throttle.set(0, self.quick)
        self.throttle.set(0, self.slow)
        process.send_signal(signal.SIGINT)
        process.wait(60)
        for folder in ("quick", "slow"):
            self.assertEqual(os.listdir(self.path(folder)), ["lost+found"])


if __name__ == "__main__":
    command_case.main(sys.argv)
