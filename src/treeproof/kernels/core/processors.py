"""How many processors this process may use: fewer than the machine has, in most containers."""

import math
import os
from pathlib import Path


def usable_processors(root: Path = Path("/")) -> int:
    """Processors that threads can run on: those of the affinity, within the quota of the group.

    Python's own count is that of the machine, and that many threads on the share of a container
    keep each other waiting. `root` is where the files of the system are.
    """
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    return max(1, math.ceil(min(count, _quota(root))))


def _quota(root: Path) -> float:
    """Processors' worth of time that the control groups of this process grant; infinite without."""
    groups = root / "sys" / "fs" / "cgroup"
    quotas = [_second_version(folder) for folder in _folders(groups, _own_group(root, "0"))]
    for name in ("cpu", "cpu,cpuacct"):
        own = _own_group(root, "cpu")
        quotas += [_first_version(folder) for folder in _folders(groups / name, own)]
    return min(quotas, default=math.inf)


def _own_group(root: Path, key: str) -> str:
    """Path of the group of this process in a hierarchy, by its number 0 or its controller."""
    for line in _read(root / "proc" / "self" / "cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if key in (number, *controllers.split(",")):
            return path
    return "/"


def _folders(top: Path, group: str) -> list[Path]:
    """Folders of a group and of all that hold it; each may have a quota of its own."""
    parts = [part for part in group.split("/") if part not in ("", "..")]
    return [top.joinpath(*parts[:depth]) for depth in range(len(parts) + 1)]


def _second_version(folder: Path) -> float:
    quota, _, period = _read(folder / "cpu.max").strip().partition(" ")
    return _ratio(quota, period)


def _first_version(folder: Path) -> float:
    return _ratio(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))


def _ratio(quota: str, period: str) -> float:
    try:
        granted, of = float(quota), float(period)
    except ValueError:  # "max", and files that are not there
        return math.inf
    return granted / of if granted > 0 and of > 0 else math.inf


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
