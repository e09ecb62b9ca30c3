"""How many threads there are by default: no more than a container may run."""

import os
from pathlib import Path

import pytest

from treeproof.kernels.core import processors
from treeproof.kernels.core.processors import usable_processors
from treeproof.prediction import thread_count


@pytest.fixture(autouse=True)
def _eight_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


OWN = {"proc/self/cgroup": "0::/pod/box\n"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 8),
        (OWN | {"sys/fs/cgroup/cpu.max": "max 100000\n"}, 8),
        (OWN | {"sys/fs/cgroup/pod/box/cpu.max": "200000 100000\n"}, 2),
        (OWN | {"sys/fs/cgroup/pod/box/cpu.max": "150000 100000\n"}, 2),
        (OWN | {"sys/fs/cgroup/pod/cpu.max": "300000 100000"}, 3),
        ({"sys/fs/cgroup/cpu.max": "50000 100000"}, 1),
        ({"sys/fs/cgroup/cpu.max": "9900000 100000"}, 8),
        ({"sys/fs/cgroup/cpu.max": "garbage"}, 8),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/docker/ab\n1:name=systemd:/x\n",
                "sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.cfs_quota_us": "400000\n",
                "sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.cfs_period_us": "100000\n",
            },
            4,
        ),
        (
            {
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            8,
        ),
    ],
)  # fmt: skip
def test_quotas_of_control_groups_are_kept(
    tmp_path: Path, files: dict[str, str], expected: int
) -> None:
    assert usable_processors(write(tmp_path, files)) == expected


def test_the_affinity_of_the_process_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 5}, raising=False)
    assert usable_processors(tmp_path) == 2


def test_all_cores_are_those(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "usable_processors", lambda: 3)
    assert thread_count(-1) == 3
    assert thread_count(2) == 2
