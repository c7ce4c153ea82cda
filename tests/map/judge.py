#!/usr/bin/env python3
"""Judges the code map by real work: is the file that a commit changed in the map that its message gets?

tests/map/judge.py REPOSITORY.. [--each 8] [--seed 1]

REPOSITORY is a git folder with history. Of each, commits are drawn by dice that change exactly one source file (tests, texts and
manifests apart). The tree before the commit is laid out, the map is asked with the commit's message, and the rank of
the file is told: within 15 an agent sees it with its definitions, within 60 by its path.
"""

import argparse, io, os, random, subprocess, sys, tarfile, tempfile

SOURCES = (".rs", ".py", ".ts", ".tsx", ".js", ".go", ".java", ".c", ".h", ".cc", ".cpp", ".rb", ".php", ".kt", ".cs")
ASK = "target/release/examples/ask-map"
WITH_SYMBOLS, IN_MAP = 15, 60


def git(repository, *args):
    done = subprocess.run(["git", "-C", repository, *args], capture_output=True, check=True)
    return done.stdout


def is_source(path):
    parts = path.lower().replace("_", "/").replace(".", "/").replace("-", "/").split("/")
    beside = {"test", "tests", "testing", "spec", "specs", "testdata", "benchmark", "bench", "examples", "docs", "dts"}
    return path.endswith(SOURCES) and not beside & set(parts)


def commits(repository, dice, count):
    log = git(repository, "log", "--no-merges", "--first-parent", "--format=%x00%H%x01%B%x01", "--name-status", "-n", "3000")
    found = []
    for entry in log.decode(errors="replace").split("\0")[1:]:
        commit, message, changes = entry.split("\1")
        changed = [line.split("\t") for line in changes.strip().splitlines()]
        sources = [change for change in changed if is_source(change[-1])]
        words = message.split()
        if len(sources) == 1 and sources[0][0] == "M" and 4 <= len(words) <= 200:
            found.append((commit, message.strip(), sources[0][1]))
    dice.shuffle(found)
    return found[:count]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repositories", nargs="+")
    parser.add_argument("--each", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    ranks = []
    for repository in args.repositories:
        name = os.path.basename(repository.rstrip("/"))
        for commit, message, wanted in commits(repository, random.Random(args.seed), args.each):
            with tempfile.TemporaryDirectory() as folder:
                tree = io.BytesIO(git(repository, "archive", commit + "^"))
                tarfile.open(fileobj=tree).extractall(folder, filter="data")
                asked = subprocess.run([ASK, folder, "1000000"], input=message, capture_output=True, text=True, check=True)
                files = sum(len(found) for _, _, found in os.walk(folder))
            paths = [line.rsplit(" ", 1)[0] for line in asked.stdout.splitlines()]
            rank = paths.index(wanted) + 1 if wanted in paths else None
            ranks.append(rank)
            print(f"{name} {commit[:8]} rank {rank} of {files} files: {wanted}: {message.splitlines()[0][:70]}")
    within = lambda most: sum(rank is not None and rank <= most for rank in ranks)
    for most in (1, 5, WITH_SYMBOLS, IN_MAP):
        print(f"within {most}: {within(most)} of {len(ranks)} ({100 * within(most) / max(1, len(ranks)):.0f} %)")
    return 0 if within(IN_MAP) >= 0.9 * len(ranks) else 1


if __name__ == "__main__":
    sys.exit(main())
