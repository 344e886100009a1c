from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from distdbg.launch import memory
from distdbg.launch.ended import EndedChild
from distdbg.launch.memory import (
    OomWatch,
    choose_victims,
    find_counter,
    locate_cgroup,
    read_kills,
)

S = 1_000_000_000
V1_MOUNT = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
V2_MOUNT = "41 31 0:38 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate"
ROOT_MOUNT = "23 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw"


@pytest.mark.parametrize(
    ("cgroup", "mounts", "folder"),
    [
        ("4:memory:/job/step\n1:cpu:/\n0::/", [V1_MOUNT], "/sys/fs/cgroup/memory/job/step"),
        ("0::/user.slice/job.scope", [V2_MOUNT], "/sys/fs/cgroup/user.slice/job.scope"),
        # Both are mounted, and version 1 has the memory.
        ("4:memory:/job\n0::/other", [V2_MOUNT, V1_MOUNT], "/sys/fs/cgroup/memory/job"),
        # Several controllers share a hierarchy.
        (
            "5:cpu,memory:/job",
            ["9 8 0:1 / /cg/cpu,memory rw - cgroup cgroup rw,cpu,memory"],
            "/cg/cpu,memory/job",
        ),
        # A container sees its own part of the tree as all of it.
        (
            "4:memory:/docker/12ab/job",
            ["9 8 0:1 /docker/12ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory"],
            "/sys/fs/cgroup/memory/job",
        ),
        ("4:memory:/docker/12ab", ["9 8 0:1 /docker/34cd /m ro - cgroup cgroup rw,memory"], None),
        ("0::/../elsewhere", [V2_MOUNT.replace(" / /sys", " /here /sys")], None),
        ("0::/a b:c", [V2_MOUNT.replace("/sys/fs/cgroup", r"/m\040nt")], "/m nt/a b:c"),
        ("0::/", [], None),
        ("", [V2_MOUNT], None),
    ],
)
def test_the_cgroup_of_a_process_is_found(
    cgroup: str, mounts: list[str], folder: str | None
) -> None:
    found = locate_cgroup(cgroup, "\n".join([ROOT_MOUNT, *mounts]))
    assert found == (None if folder is None else Path(folder))


def test_a_process_that_has_ended_and_was_not_reaped_is_in_no_cgroup() -> None:
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    assert find_counter(pid) is not None
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    try:
        assert find_counter(pid) is None  # the kernel has put it into the root of all cgroups
    finally:
        os.waitpid(pid, 0)


def test_every_file_that_counts_is_read_alike(tmp_path: Path) -> None:
    file = tmp_path / "file"
    for text, kills in (
        ("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", 3),
        ("low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 0\n", 1),
        ("nr_free_pages 5\noom_kill 12\n", 12),
        ("oom_kill_disable 0\nunder_oom 0\n", None),
        ("", None),
    ):
        file.write_text(text)
        assert read_kills(file) == kills
    assert read_kills(tmp_path / "none") is None


def test_the_largest_are_taken_when_fewer_were_killed_than_died() -> None:
    used = {"rank 0": 5, "rank 1": 900, "rank 2": 800}
    assert choose_victims(used, 0) == frozenset()
    assert choose_victims(used, 1) == {"rank 1"}
    assert choose_victims(used, 2) == {"rank 1", "rank 2"}
    assert choose_victims(used, 5) == set(used)


class Host:
    """Two cgroups, and who is in which."""

    def __init__(self, folder: Path) -> None:
        self.files = [folder / "one", folder / "two"]
        self.places: dict[int, Path] = {}
        for file in self.files:
            self.count(file, 0)

    def count(self, file: Path, kills: int) -> None:
        file.write_text(f"oom_kill {kills}\n")

    def find_counter(self, pid: int) -> Path | None:
        return self.places.get(pid)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host(tmp_path)
    monkeypatch.setattr(memory, "find_counter", host.find_counter)
    return host


def ended(number: int, status: int = 9, used: int = 100) -> EndedChild:
    return EndedChild(
        name=f"rank {number}",
        pid=number,
        status=status,
        user_s=0.0,
        system_s=0.0,
        max_rss_nbytes=used,
        ended_ns=0,
    )


def follow(host: Host, *places: int) -> OomWatch:
    watch = OomWatch()
    for number, place in enumerate(places):
        host.places[number] = host.files[place]
        watch.add(f"rank {number}", number)
    return watch


def test_a_kill_that_is_counted_is_told_from_one_that_is_not(host: Host) -> None:
    host.count(host.files[0], 3)  # of earlier jobs
    watch = follow(host, 0, 0, 0)
    assert watch.find_victims([ended(0)], 1 * S) == frozenset()
    host.count(host.files[0], 4)
    assert watch.find_victims([ended(1)], 2 * S) == {"rank 1"}
    assert watch.find_victims([ended(2)], 3 * S) == frozenset()


def test_only_a_sigkill_that_nobody_asked_for_is_one(host: Host) -> None:
    watch = follow(host, 0, 0, 0, 0)
    host.count(host.files[0], 1)
    ends = [ended(0, status=15), ended(1, status=0), ended(2, used=900), ended(3)]
    assert watch.find_victims(ends, 1 * S, asked={"rank 2"}) == {"rank 3"}


def test_ranks_of_one_cgroup_that_die_together_share_its_count(host: Host) -> None:
    watch = follow(host, 0, 0, 0, 1)
    host.count(host.files[0], 2)
    ends = [ended(0, used=5), ended(1, used=70), ended(2, used=90), ended(3, used=900)]
    assert watch.find_victims(ends, 1 * S) == {"rank 1", "rank 2"}


def test_a_victim_may_end_long_after_it_was_counted_but_not_forever(host: Host) -> None:
    watch = follow(host, 0, 0)
    host.count(host.files[0], 1)
    watch.refresh(1 * S)
    watch.refresh(2 * S)
    assert watch.find_victims([ended(0)], 9 * S) == {"rank 0"}
    host.count(host.files[0], 2)  # a child of a rank
    watch.refresh(10 * S)
    assert watch.find_victims([ended(1)], 25 * S) == frozenset()


def test_a_process_that_moves_is_followed(host: Host) -> None:
    host.count(host.files[1], 8)
    watch = follow(host, 0)
    host.places[0] = host.files[1]
    watch.refresh(1 * S)
    host.count(host.files[1], 9)
    host.places.clear()  # it has ended, and does not tell where it was
    watch.refresh(2 * S)
    assert watch.find_victims([ended(0)], 3 * S) == {"rank 0"}


def test_a_cgroup_that_is_removed_ends_its_count(host: Host) -> None:
    watch = follow(host, 0, 0)
    host.count(host.files[0], 1)
    watch.refresh(1 * S)
    host.files[0].unlink()
    assert watch.find_victims([ended(0)], 2 * S) == {"rank 0"}
    assert watch.find_victims([ended(1)], 2 * S) == frozenset()


def test_who_was_never_added_is_no_victim(host: Host) -> None:
    assert OomWatch().find_victims([ended(0)], 1 * S) == frozenset()
