"""When the file of a FileStore is in use, over, or unclear: decided from its users alone."""

from __future__ import annotations

import pytest

from distdbg.runtime.rendezvous.process import ProcessIdentity
from distdbg.runtime.store.log_file import FileState, Users, describe, judge, to_entry


def process(pid: int) -> ProcessIdentity:
    return ProcessIdentity(host="here", boot_id="boot", pid_namespace=1, pid=pid, started=pid)


ALIVE, GONE, UNKNOWN = process(1), process(2), process(3)


def users_of(*present: ProcessIdentity, left: int = 0) -> Users:
    users = Users()
    for number in range(left):
        users.enter(f"left{number}", to_entry(process(100 + number), is_counted=True))
        users.leave(f"left{number}")
    for number, each in enumerate(present):
        users.enter(f"user{number}", to_entry(each, is_counted=True))
    return users


@pytest.mark.parametrize(
    ("users", "world_size", "state"),
    [
        (users_of(), 2, FileState.IN_USE),  # new
        (users_of(ALIVE), 2, FileState.IN_USE),
        (users_of(UNKNOWN), 2, FileState.IN_USE),  # on another host: the usual case there
        (users_of(GONE), 2, FileState.OVER),
        (users_of(GONE, GONE), 2, FileState.OVER),
        (users_of(GONE, ALIVE), 2, FileState.IN_USE),
        (users_of(GONE, UNKNOWN), 2, FileState.UNCLEAR),
        (users_of(GONE, ALIVE, UNKNOWN), 3, FileState.IN_USE),
        (users_of(left=1), 2, FileState.IN_USE),  # a fast rank was here, the other still comes
        (users_of(left=2), 2, FileState.OVER),  # whoever left last could not remove it
        (users_of(left=2), -1, FileState.IN_USE),  # nobody knows how many will come
        (users_of(GONE, left=1), -1, FileState.OVER),
    ],
)
def test_a_file_is_judged_by_its_users(users: Users, world_size: int, state: FileState) -> None:
    assert judge(users, world_size, lambda p: p == GONE, lambda p: p == ALIVE) == state


def test_a_clone_is_not_counted_as_another_rank() -> None:
    users = users_of(ALIVE)
    users.enter("clone", to_entry(ALIVE, is_counted=False))
    users.leave("user0")
    users.leave("clone")
    assert not users.is_finished(2)
    assert users.is_finished(1)


def test_many_users_are_described_by_some() -> None:
    lines = describe({str(pid): process(pid) for pid in range(12)})
    assert len(lines) == 9
    assert lines[0] == "opened by pid 0 on host here"
    assert lines[-1] == "and 4 more"
