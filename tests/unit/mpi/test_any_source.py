"""Receives from any rank by matched probes: whose a message is, on a communicator that is a list."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from distdbg.runtime.backends.mpi.any_source import AnySource, loses_any_source

ANY = -1


class Refused(Exception):
    """Stands for MPI's."""


MPI = SimpleNamespace(ANY_SOURCE=ANY, Exception=Refused)


class Request:
    def __init__(self, reported: str) -> None:
        self.reported = reported

    def Test(self, status: Any = None) -> bool:
        return True


class Comm:
    """Stands for a communicator: messages are (source, tag, text)."""

    def __init__(self) -> None:
        self.come: list[tuple[int, int, str]] = []
        self.got: dict[str, str] = {}
        self.refuses = False

    def Irecv(self, spec: str, source: int, tag: int) -> Request:
        if self.refuses:
            raise Refused
        self.got[spec] = self._take(source, tag) or f"posted for {source}"
        return Request(self.got[spec])

    def Improbe(self, source: int, tag: int) -> Any:
        text = self._take(source, tag)
        if text is None:
            return None

        def receive(spec: str) -> Request:
            self.got[spec] = text
            return Request(text)

        return SimpleNamespace(Irecv=receive)

    def _take(self, source: int, tag: int) -> str | None:
        for each in self.come:
            if each[1] == tag and source in (ANY, each[0]):
                self.come.remove(each)
                return each[2]
        return None


@pytest.fixture
def comm() -> Comm:
    return Comm()


def test_a_message_that_has_come_is_taken_at_once(comm: Comm) -> None:
    comm.come = [(2, 5, "hello")]
    assert AnySource(MPI, comm).post("x", ANY, 5).Test()
    assert comm.got == {"x": "hello"}


def test_a_receive_from_one_rank_is_mpis_own_where_none_is_before_it(comm: Comm) -> None:
    order = AnySource(MPI, comm)
    assert isinstance(order.post("x", 1, 5), Request)
    order.post("y", ANY, 5)
    assert isinstance(order.post("z", 1, 6), Request)
    assert not isinstance(order.post("w", 1, 5), Request)


def test_messages_go_to_receives_in_the_order_of_these(comm: Comm) -> None:
    order = AnySource(MPI, comm)
    first, second, third = order.post("a", ANY, 5), order.post("b", 1, 5), order.post("c", ANY, 5)
    assert not third.Test()
    comm.come = [(1, 5, "one"), (1, 5, "two")]
    assert not third.Test()
    assert second.Test()
    assert first.Test()
    comm.come = [(2, 5, "three")]
    assert third.Test()
    assert comm.got == {"a": "one", "b": "two", "c": "three"}


def test_other_tags_do_not_wait(comm: Comm) -> None:
    order = AnySource(MPI, comm)
    waits = order.post("a", ANY, 5)
    other = order.post("b", ANY, 6)
    comm.come = [(1, 6, "six")]
    assert (other.Test(), waits.Test()) == (True, False)


def test_whoever_looks_after_another_op_matches_all(comm: Comm) -> None:
    order = AnySource(MPI, comm)
    order.post("a", ANY, 5)
    comm.come = [(1, 5, "one")]
    order.match_all()
    assert comm.got == {"a": "one"}


def test_a_receive_that_is_withdrawn_lets_those_behind_it_go(comm: Comm) -> None:
    order = AnySource(MPI, comm)
    first, second = order.post("a", ANY, 5), order.post("b", 1, 5)
    assert first.withdraw()
    assert comm.got == {"b": "posted for 1"}
    assert not second.withdraw()


def test_an_error_of_mpi_is_raised_by_the_receive_that_it_is_of(comm: Comm) -> None:
    order = AnySource(MPI, comm)
    first, second = order.post("a", ANY, 5), order.post("b", 1, 5)
    comm.refuses = True
    comm.come = [(2, 5, "two")]
    assert first.Test()
    with pytest.raises(Refused):
        second.Test()


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("MPICH Version:      5.0.2\nMPICH Device:       ch4:ucx ofi\nMPICH CC: cc", True),
        ("MPICH Version:      4.2\nMPICH Device:       ch4:ofi\n", False),
        (
            "MPICH Version:      4.2\nMPICH Device:  ch3:nemesis\nMPICH configure: --without-ucx",
            False,
        ),
        ("Open MPI v5.0.11, package: ucx device", False),
    ],
)
def test_only_mpich_over_ucx_is_not_relied_on(version: str, expected: bool) -> None:
    assert loses_any_source(version) is expected
