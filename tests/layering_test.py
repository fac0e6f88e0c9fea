#!/usr/bin/env python3
"""Holds the sources to the layers: io <- swap <- engine <- src, and to the file length.

Reads every #include below io, swap, engine and src. Each rule is shown to fail on a small tree
that breaks it, so that a reader change which blinds a rule is noticed.

    python3 tests/layering_test.py          the project's own tree and the rules' own tests
    python3 tests/layering_test.py ROOT     prints what is wrong in another tree, exit 1 if anything
"""
import os
import re
import sys
import tempfile
import unittest

LAYERS = ("io", "swap", "engine", "src")
# Only these include torch; the rest of engine, plan above all, stays free of it however long the
# chain of headers is. src may meet it through the trainer's headers.
TORCH_FOLDERS = ("engine/comm", "engine/model", "engine/train")
SOURCE_ENDS = (".h", ".cc", ".cu", ".cuh")
LENGTH_ENDS = SOURCE_ENDS + (".py", ".sh", ".cmake", "CMakeLists.txt")
LENGTH_FOLDERS = LAYERS + ("tests", "bench", "scripts", "cmake")
LENGTH_MAX = 400

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
CUDA = re.compile(r"^(cuda|cublas|cudnn|cufile|curand|nccl|nvml|nvToolsExt|nvtx3|cub/|thrust/)")
RING = re.compile(r"^liburing")
TOPOLOGY = re.compile(r"^hwloc(\.h|/)")


def files_below(root, folders, ends):
    """Paths relative to root, with forward slashes, in a fixed order."""
    found = []
    for folder in folders:
        for place, folders_here, names in os.walk(os.path.join(root, folder)):
            folders_here.sort()
            for name in sorted(names):
                if name.endswith(ends):
                    found.append(os.path.relpath(os.path.join(place, name), root))
    return found


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


class Tree:
    """The sources of a tree and what each includes."""

    def __init__(self, root):
        self.root = root
        self.sources = files_below(root, LAYERS, SOURCE_ENDS)
        self.includes = {path: [(m[1], m[2]) for m in INCLUDE.finditer(read(root, path))]
                         for path in self.sources}

    def own(self, path):
        """The project's own files that `path` includes."""
        return [name for _, name in self.includes.get(path, ()) if name in self.includes]

    def reach(self, start):
        """Own files reached from `start` through includes, each with the file that led there."""
        came_from = {start: None}
        queue = [start]
        while queue:
            path = queue.pop()
            for name in self.own(path):
                if name not in came_from:
                    came_from[name] = path
                    queue.append(name)
        return came_from


def layer(path):
    return path.split("/")[0]


def folder(path):
    return os.path.dirname(path)


def in_folders(path, folders):
    return any(path.startswith(name + "/") for name in folders)


def wrong_arrows(tree):
    """An include goes to the same layer or a lower one, and is written from the root."""
    for path in tree.sources:
        for quote, name in tree.includes[path]:
            if quote == '"' and os.path.exists(os.path.join(tree.root, folder(path), name)):
                yield f'{path}: "{name}" is relative to its folder: write it from the root'
            elif layer(name) in ("tests", "bench") and quote == '"':
                yield f'{path}: includes "{name}": nothing in the product may need tests or bench'
            elif layer(name) in LAYERS and "/" in name:
                if LAYERS.index(layer(name)) > LAYERS.index(layer(path)):
                    yield f"{path}: includes {name}: {layer(path)} lies below {layer(name)}"


def wrong_libraries(tree):
    """Libraries are included only where they belong."""
    for path in tree.sources:
        for _, name in tree.includes[path]:
            if TORCH.match(name) and not in_folders(path, TORCH_FOLDERS):
                yield f"{path}: includes {name}: torch belongs to {' and '.join(TORCH_FOLDERS)}"
            if RING.match(name) and layer(path) != "io":
                yield f"{path}: includes {name}: liburing belongs to io"
            if TOPOLOGY.match(name) and layer(path) != "io":
                yield f"{path}: includes {name}: hwloc belongs to io"
            if CUDA.match(name) and layer(path) == "io":
                yield f"{path}: includes {name}: io knows no CUDA"
        if layer(path) == "io" and path.endswith((".cu", ".cuh")):
            yield f"{path}: io knows no CUDA"


def hidden_torch(tree):
    """No chain of headers brings torch into io, swap or a folder of engine that is free of it."""
    for path in tree.sources:
        if layer(path) == "src" or in_folders(path, TORCH_FOLDERS):
            continue
        came_from = tree.reach(path)
        for reached in sorted(came_from):
            if reached == path or not any(TORCH.match(n) for _, n in tree.includes[reached]):
                continue
            chain = [reached]
            while came_from[chain[-1]] is not None:
                chain.append(came_from[chain[-1]])
            yield f"{path}: torch comes in through {' <- '.join(chain[:-1])}"
            break


def folder_cycles(tree):
    """No two folders include each other, directly or round a longer circle."""
    to = {}
    for path in tree.sources:
        for name in tree.own(path):
            if folder(name) != folder(path):
                to.setdefault(folder(path), {}).setdefault(folder(name), (path, name))

    def way(start, goal):
        queue, seen = [(start, [start])], {start}
        while queue:
            here, so_far = queue.pop(0)
            if here == goal:
                return so_far
            for there in sorted(to.get(here, ())):
                if there not in seen:
                    seen.add(there)
                    queue.append((there, so_far + [there]))
        return None

    told = set()
    for start in sorted(to):
        for there in sorted(to[start]):
            back = way(there, start)
            if back and frozenset(back) not in told:
                told.add(frozenset(back))
                circle = [start] + back
                steps = [to[a][b] for a, b in zip(circle, circle[1:])]
                yield "folders include each other: " + ", ".join(f"{a} -> {b}" for a, b in steps)


def long_files(root):
    """A file holds one concept and at most LENGTH_MAX lines."""
    for path in files_below(root, LENGTH_FOLDERS, LENGTH_ENDS):
        lines = read(root, path).count("\n")
        if lines > LENGTH_MAX:
            yield f"{path}: {lines} lines, at most {LENGTH_MAX}: split it by concept"


def findings(root):
    tree = Tree(root)
    found = []
    for rule in (wrong_arrows, wrong_libraries, hidden_torch, folder_cycles):
        found.extend(rule(tree))
    found.extend(long_files(root))
    return found


class ProjectTest(unittest.TestCase):
    def test_the_project_keeps_the_rules(self):
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        tree = Tree(root)
        for name in LAYERS:
            self.assertTrue(any(layer(p) == name for p in tree.sources), f"no source below {name}")
        self.assertTrue(any(tree.own(p) for p in tree.sources), "no include was understood")
        self.assertEqual([], findings(root))


class RulesTest(unittest.TestCase):
    """Each rule fails on a tree that breaks it, and only there."""

    BASE = {
        "io/a.h": "#pragma once\n#include <liburing.h>\n#include <hwloc.h>\n",
        "swap/b.h": '#include "io/a.h"\n#include <cuda_runtime.h>\n',
        "engine/plan/c.h": '#include "swap/b.h"\n#include "engine/model/shape.h"\n',
        "engine/model/shape.h": '#include <string>\n#include "hwy/highway.h"\n',
        "engine/model/block.h": '#include <torch/torch.h>\n#include "engine/model/shape.h"\n',
        "engine/train/t.cc": '#include "engine/model/block.h"\n#include "engine/plan/c.h"\n',
        "src/main.cc": '#include "engine/model/block.h"\n#include "io/a.h"\n',
    }

    def check(self, changed, *expected):
        """The base tree with `changed` has exactly these findings, each told by a part of it."""
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**self.BASE, **changed}.items():
                os.makedirs(os.path.join(root, folder(path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            found = findings(root)
        self.assertEqual(len(expected), len(found), found)
        for part, finding in zip(expected, found):
            self.assertIn(part, finding)

    def test_a_good_tree_passes(self):
        self.check({})

    def test_an_arrow_that_goes_up(self):
        self.check({"io/up.cc": '#include "swap/b.h"\n'},
                   "io lies below swap", "folders include each other")
        self.check({"swap/up.cc": '  #  include "engine/plan/c.h"\n'},
                   "swap lies below engine", "folders include each other")
        self.check({"engine/plan/up.cc": "#include <src/flags.h>\n"}, "engine lies below src")

    def test_an_include_that_is_not_from_the_root(self):
        self.check({"io/x.cc": '#include "a.h"\n'}, "write it from the root")

    def test_tests_in_the_product(self):
        self.check({"io/x.cc": '#include "tests/fakes/clock.h"\n'}, "may need tests")

    def test_torch_outside_its_folders(self):
        for name in ("torch/torch.h", "ATen/core/Tensor.h", "c10/util/Exception.h"):
            for path in ("io/x.cc", "swap/x.cc", "engine/plan/x.cc", "engine/optim/x.h",
                         "src/x.cc"):
                self.check({path: f"#include <{name}>\n"}, "torch belongs to")

    def test_torch_through_a_chain_of_headers(self):
        self.check({"engine/plan/x.cc": '#include "engine/model/block.h"\n'},
                   "engine/plan/x.cc: torch comes in through engine/model/block.h")
        self.check({"engine/model/deep.h": '#include "engine/model/block.h"\n',
                    "engine/plan/x.cc": '#include "engine/model/deep.h"\n'},
                   "through engine/model/block.h <- engine/model/deep.h")

    def test_io_libraries_outside_io(self):
        self.check({"swap/x.cc": "#include <liburing.h>\n"}, "liburing belongs to io")
        self.check({"engine/plan/x.cc": "#include <hwloc.h>\n"}, "hwloc belongs to io")
        self.check({"src/x.cc": "#include <hwloc/glibc-sched.h>\n"}, "hwloc belongs to io")

    def test_cuda_in_io(self):
        self.check({"io/x.cc": "#include <cuda_runtime.h>\n"}, "io knows no CUDA")
        self.check({"io/x.cu": "\n"}, "io knows no CUDA")

    def test_folders_that_include_each_other(self):
        self.check({"engine/model/back.cc": '#include "engine/plan/c.h"\n'},
                   "folders include each other")

    def test_a_longer_circle_of_folders(self):
        self.check({"engine/data/d.h": '#include "engine/plan/c.h"\n',
                    "engine/model/back.cc": '#include "engine/data/d.h"\n'},
                   "folders include each other")

    def test_a_long_file(self):
        self.check({"io/long.cc": "\n" * LENGTH_MAX})
        self.check({"io/long.cc": "\n" * (LENGTH_MAX + 1)}, "401 lines")
        self.check({"tests/io/long_test.cc": "\n" * 1000}, "1000 lines")


if __name__ == "__main__":
    if len(sys.argv) == 2 and os.path.isdir(sys.argv[1]):
        problems = findings(sys.argv[1])
        print("\n".join(problems))
        sys.exit(1 if problems else 0)
    unittest.main()
