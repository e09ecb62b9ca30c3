"""Processes killed while they or others compile: no compiler is left over, no cache is damaged.

    python -m tests.campaigns.killed_compilers --kills 100 [--seed N]

All share one cache, which is empty at first. Each process asks questions as plain Python while
another one compiles, or compiles by itself, and is killed at a random moment. In the end machine
code must be there, and give the answers of plain Python. The exit status is 1 if one does not, or
if a compiler outlives the process that it serves.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ASK = """
import sys
import numpy as np
import treeproof as tp
from sklearn.ensemble import GradientBoostingClassifier
rng = np.random.default_rng(0)
X = rng.normal(size=(300, 5))
trees = GradientBoostingClassifier(n_estimators=20, random_state=0).fit(X, X[:, :2].prod(1) > 0)
model = tp.load(trees)
moves = [None, tp.L1(), tp.L0()]
while True:
    for kind in moves:
        found = tp.radius(model, X[:20], None, kind, evidence=kind is None)
        print(np.round(found.upper, 9).tolist())
    print(tp.score_range(model, tp.LInf(0.1), X[:1])[0].maximum.upper)
    if len(sys.argv) > 1:
        break
"""
LONGEST_S = 20.0
ENDED_S = 15.0


def _environment(folder: Path, mode: str) -> dict[str, str]:
    return {**os.environ, "NUMBA_CACHE_DIR": str(folder), "TREEPROOF_PLAIN": mode}


def left_over(folder: Path) -> list[int]:
    """Living processes that were started with the cache."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            is_ours = f"NUMBA_CACHE_DIR={folder}\0".encode() in (entry / "environ").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if is_ours and state != "Z":
            found.append(int(entry.name))
    return found


def answers(folder: Path, mode: str) -> str:
    """What a process that is left alone says."""
    told = subprocess.run(
        [sys.executable, "-W", "error", "-c", ASK, "once"],
        env=_environment(folder, mode),
        capture_output=True,
        text=True,
        timeout=1200,
        check=True,
    )
    return told.stdout


def campaign(kills: int, seed: int) -> int:
    """The number of faults."""
    chance, faults = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(kills):
            mode = chance.choice(["auto", "auto", "never"])
            alone = chance.random() < 0.7
            running = [
                subprocess.Popen(
                    [sys.executable, "-c", ASK],
                    env=_environment(folder, mode),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                for _ in range(1 if alone else 2)
            ]
            time.sleep(chance.uniform(0.5, LONGEST_S))
            for process in running:
                process.send_signal(chance.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
            for process in running:
                process.wait(timeout=60)
            until = time.monotonic() + ENDED_S
            while left_over(folder) and time.monotonic() < until:
                time.sleep(0.2)
            for orphan in left_over(folder):
                print(f"kill {number}: process {orphan} is left over")
                os.kill(orphan, signal.SIGKILL)
                faults += 1
        plain, compiled = answers(folder, "always"), answers(folder, "never")
        if plain != compiled:
            print(f"plain Python says {plain!r}, machine code {compiled!r}")
            faults += 1
    return faults


def main() -> int:
    """Run the campaign from the shell."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.killed_compilers")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    faults = campaign(options.kills, options.seed)
    print(f"{options.kills} processes killed, {faults} faults")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
