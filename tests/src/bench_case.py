"""What the tests of `marea bench` share."""
import json
import os

from command_case import CommandCase

QUICK = ["--size", "64MiB", "--seconds", "0.2"]


class BenchCase(CommandCase):
    def bench(self, *words, **options):
        return self.marea("bench", *words, **options)

    def figures(self, *words, **options):
        process = self.bench("--nvme", "nvme", "--json", *words, **options)
        self.assertEqual(process.returncode, 0, process.stderr_text)
        return json.loads(process.stdout_text)

    def warnings(self, report):
        return " ".join(sum((result["warnings"] for result in report["results"]), []))

    def refuses_bench(self, parts, *words, **options):
        before = self.names()
        self.check_failure(self.bench(*words, **options), 2, parts)
        self.assertEqual(self.names(), before)

    def names(self):
        return {os.path.join(where, name) for where, _, files in os.walk(self.folder)
                for name in files}
