"""Ops of another library in a GPU's queues, and when the device began and ended them, by events of our own.

The driver is a stand-in (tests/support/cuda_streams.c), which claims nothing about hardware.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from distdbg.native import EventReader, Form, NativeError, QueuedOps, Recorder, StreamEvents
from distdbg.ops.call import Kind
from distdbg.record.entries import OpEntry
from distdbg.record.format import Flag, Status
from distdbg.record.reader import read_record
from distdbg.torch_bridge.tap.queued import HOST, NOWHERE, WITHOUT_EVENTS
from tests.native.moments import LIMIT_S, comes, spin_ms
from tests.support.cuda_stand_in import compile_driver, open_driver


@pytest.fixture(scope="module")
def path_of_driver(tmp_path_factory: pytest.TempPathFactory) -> str:
    driver = compile_driver(tmp_path_factory.mktemp("driver"))
    if driver is None:
        pytest.skip("a C compiler is missing")
    return driver


@pytest.fixture
def driver(path_of_driver: str) -> Iterator[ctypes.CDLL]:
    driver = open_driver(path_of_driver)
    driver.set_holds(1)
    yield driver
    driver.set_holds(0)
    while driver.pass_next(0):
        pass
    assert driver.count_asked_elsewhere() == 0  # each event is asked for in its own context


@pytest.fixture
def reader(path_of_driver: str) -> Iterator[EventReader]:
    reader = EventReader(path_of_driver)
    yield reader
    reader.close()


@pytest.fixture
def queued(path_of_driver: str, driver: ctypes.CDLL, reader: EventReader) -> QueuedOps:
    return QueuedOps(StreamEvents(path_of_driver), reader, driver.stream_of, wait_for)


def wait_for(address: int, device: int, future: Any) -> None:
    """What torch does: the stream waits for what the future is done with."""
    future(address)


class Job:
    """A record, and ops in it."""

    def __init__(self, path: Path, queued: QueuedOps) -> None:
        self.path = path
        self.queued = queued
        self.recorder = Recorder.create(
            os.fsencode(path), 0, 1, "n14", "boot", "1", "3", "run", "[]", 64
        )
        self.group = self.recorder.add_group("0", "", "0", "nccl", 1, 0, 0)
        self.count = 0

    def begin(self, device: int = 0, kind: Kind = Kind.ALL_REDUCE) -> Any:
        self.count += 1
        form = Form(b"{}", kind.label, int(kind), 8, 0, "float32")
        flags = int(Flag.MESSAGE | Flag.END_NOTICED) if kind >= Kind.SEND else 0
        began = self.queued.begin(device, True)
        op = self.recorder.begin(self.group, form, self.count, 0, -1, flags)
        op.set_begin(began)
        return op

    def find(self, op: Any) -> OpEntry:
        return next(each for each in read_record(self.path).ops if each.number == op.number)

    def has_started(self, op: Any) -> bool:
        return self.find(op).started_ns is not None

    def has_ended(self, op: Any) -> bool:
        return self.find(op).ended_ns is not None

    def ran_ns(self, op: Any) -> int:
        found = self.find(op)
        assert found.started_ns is not None
        assert found.ended_ns is not None
        return found.ended_ns - found.started_ns


@pytest.fixture
def job(tmp_path: Path, queued: QueuedOps) -> Iterator[Job]:
    job = Job(tmp_path / "rank00000.ddr", queued)
    yield job
    queued.broken_off(int(Status.BROKEN))
    del job.recorder


def test_an_op_ends_when_its_device_has_done_it(job: Job, driver: ctypes.CDLL) -> None:
    op = job.begin()
    op.ended(0, 3)  # its call has returned
    spin_ms(5)
    assert not job.has_started(op)
    assert not job.has_ended(op)
    driver.pass_next(1.0)
    assert comes(lambda: job.has_started(op))
    assert not job.has_ended(op)
    spin_ms(3)
    driver.pass_next(1.25)
    assert comes(lambda: job.has_ended(op))
    assert (job.find(op).status, job.find(op).source) == (Status.OK, 3)
    assert job.ran_ns(op) == 250_000


def test_an_op_starts_when_the_one_before_it_has_ended(job: Job, driver: ctypes.CDLL) -> None:
    first = job.begin()
    first.ended(0, -1)
    driver.pass_next(1.0)
    second = job.begin()
    second.ended(0, -1)
    left = driver.pass_next(4.0)  # the end of the first
    assert left == 2
    assert comes(lambda: job.has_ended(first))
    assert not job.has_started(second)
    driver.pass_next(2.0)  # what the second needed was there before
    assert comes(lambda: job.has_started(second))
    spin_ms(8)
    driver.pass_next(4.5)
    assert comes(lambda: job.has_ended(second))
    assert job.ran_ns(second) == 500_000


def test_a_message_waits_for_no_collective(job: Job, driver: ctypes.CDLL) -> None:
    job.begin().ended(0, -1)  # hangs
    message = job.begin(kind=Kind.SEND)
    message.ended(0, -1)
    driver.set_holds(0)
    other = job.begin(kind=Kind.SEND)
    other.ended(0, -1)
    assert comes(lambda: job.has_ended(other))
    assert not job.has_ended(message)


def test_each_device_has_its_context_and_the_callers_is_left(job: Job, driver: ctypes.CDLL) -> None:
    driver.set_holds(0)
    for current in (0, -1):
        driver.set_current_device(current)
        op = job.begin(device=1)
        op.ended(0, -1)
        assert driver.current_device() == current
        assert comes(lambda op=op: job.has_ended(op))


def test_nothing_is_recorded_in_a_stream_that_is_captured(
    job: Job, queued: QueuedOps, driver: ctypes.CDLL
) -> None:
    driver.set_capturing(0, 1)
    assert not queued.begin(0, True).has_event
    driver.set_capturing(0, 0)
    op = job.begin()
    driver.set_capturing(0, 1)  # between its begin and its end
    op.ended(0, -1)
    driver.set_capturing(0, 0)
    assert (job.find(op).status, job.find(op).is_end_queued) == (Status.OK, True)


def test_what_has_no_device_and_what_cannot_be_asked_ends_at_once(
    job: Job, path_of_driver: str, reader: EventReader, queued: QueuedOps
) -> None:
    def refuses(device: int) -> int:
        raise RuntimeError("CUDA error")

    assert not queued.begin(HOST, True).is_queued
    assert not queued.begin(NOWHERE, False).is_queued  # its call waits for it
    assert queued.begin(NOWHERE, True).is_queued
    assert not queued.begin(9, True).has_event
    refused = QueuedOps(StreamEvents(path_of_driver), reader, refuses, wait_for)
    assert not refused.begin(0, True).has_event
    for device, is_queued in ((HOST, False), (NOWHERE, True), (WITHOUT_EVENTS, True), (9, True)):
        op = job.begin(device=device)
        op.ended(0, -1)
        assert (job.find(op).status, job.find(op).is_end_queued) == (Status.OK, is_queued)


def test_another_thread_may_wait_for_it(job: Job, driver: ctypes.CDLL) -> None:
    op = job.begin()
    thread = threading.Thread(target=op.ended, args=(0, -1))
    thread.start()
    thread.join()
    assert not job.has_ended(op)
    driver.pass_next(1.0)
    driver.pass_next(2.0)
    assert comes(lambda: job.has_ended(op))


def test_an_op_whose_library_says_that_its_device_has_done_it_ends_at_once(job: Job) -> None:
    op, queued = job.begin(), job.begin()
    op.left_device()
    op.ended(0, -1)
    assert (job.find(op).status, job.find(op).is_end_queued) == (Status.OK, False)
    queued.ended(0, -1)
    queued.left_device()  # its device is to tell by now
    queued.ended(0, -1)
    assert not job.has_ended(queued)


def test_its_end_comes_in_a_stream_that_waits_for_its_future(job: Job, driver: ctypes.CDLL) -> None:
    waited: list[int] = []
    op = job.begin()
    op.end_behind(waited.append)
    op.ended(0, -1)  # somebody waits as well
    assert waited
    assert waited != [driver.stream_of(0)]
    spin_ms(3)  # no op starts before it was called
    driver.pass_next(1.0)
    assert driver.pass_next(1.5) == 0  # there is one end
    assert comes(lambda: job.has_ended(op))
    assert job.ran_ns(op) == 500_000


def test_without_a_place_on_its_device_its_future_ends_it(job: Job) -> None:
    op = job.begin(device=WITHOUT_EVENTS)
    op.end_behind(lambda address: None)
    assert (job.find(op).status, job.find(op).is_end_queued) == (Status.OK, True)


def test_a_message_that_ends_when_it_is_queued_is_not_one_whose_end_is_noticed(job: Job) -> None:
    op = job.begin(device=WITHOUT_EVENTS, kind=Kind.SEND)
    assert job.find(op).is_end_noticed
    op.ended(0, -1)
    assert (job.find(op).is_end_noticed, job.find(op).is_end_queued) == (False, True)


def test_the_default_stream_is_that_of_the_ops_device(
    path_of_driver: str, driver: ctypes.CDLL, reader: EventReader
) -> None:
    queued = QueuedOps(StreamEvents(path_of_driver), reader, lambda device: 0, wait_for)
    found: list[bool] = []

    def begin() -> None:  # in a thread without a context
        found.extend(queued.begin(device, True).has_event for device in (1, 0))

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    assert found == [True, True]


def test_other_threads_run_while_the_queue_of_the_device_is_full(
    queued: QueuedOps, driver: ctypes.CDLL
) -> None:
    assert queued.begin(0, True).has_event
    driver.set_full(1)
    thread = threading.Thread(target=queued.begin, args=(0, True))
    thread.start()
    spin_ms(50)  # none of this would run
    assert thread.is_alive()
    driver.set_full(0)
    thread.join(LIMIT_S)
    assert not thread.is_alive()


def test_a_group_that_is_given_up_ends_what_its_device_has_not_done(
    job: Job, queued: QueuedOps, driver: ctypes.CDLL, reader: EventReader
) -> None:
    done, hangs, late = job.begin(), job.begin(), job.begin()
    done.ended(0, -1)
    hangs.ended(0, -1)
    spin_ms(40)  # so old that the reader comes once in a millisecond
    for _ in range(4):  # the begins, and the end of the first
        driver.pass_next(1.0)
    queued.broken_off(int(Status.MISMATCH))
    assert job.find(done).status == Status.OK
    assert job.find(hangs).status == Status.MISMATCH
    driver.pass_next(2.0)  # the device lets go of it
    hangs.ended(0, -1)
    late.ended(0, -1)
    assert [job.find(op).status for op in (hangs, late)] == [Status.MISMATCH] * 2


def test_an_error_that_comes_after_the_device_let_go_of_it_is_its_end(
    job: Job, driver: ctypes.CDLL
) -> None:
    driver.set_holds(0)
    op = job.begin()
    op.ended(0, -1)
    assert comes(lambda: job.has_ended(op))
    op.ended(int(Status.TIMEOUT), -1)
    assert job.find(op).status == Status.TIMEOUT


def test_nothing_is_kept_of_what_ended_behind_one_that_hangs(job: Job, driver: ctypes.CDLL) -> None:
    job.begin(kind=Kind.RECV).ended(0, -1)
    driver.set_holds(0)

    def pages_after(count: int) -> int:
        for n in range(count):
            job.begin().ended(0, -1)
            if n % 500 == 499:
                spin_ms(5)
        return int(Path("/proc/self/statm").read_text().split()[1])

    before = pages_after(2_000)
    assert pages_after(20_000) - before < 500  # of 4 KiB: a tenth of them at 100 bytes each


def test_an_op_behind_the_end_of_the_reader_ends_as_it_is_queued(
    job: Job, reader: EventReader
) -> None:
    reader.close()
    op = job.begin()
    op.ended(0, -1)
    assert (job.find(op).status, job.find(op).is_end_queued) == (Status.OK, True)


def test_an_error_ends_it_too(job: Job, driver: ctypes.CDLL) -> None:
    before = job.begin()
    behind = job.begin()
    before.ended(int(Status.TIMEOUT), -1)
    behind.ended(0, -1)
    behind.ended(int(Status.TIMEOUT), -1)
    assert [job.find(op).status for op in (before, behind)] == [Status.TIMEOUT] * 2


def test_events_are_used_again(job: Job, driver: ctypes.CDLL) -> None:
    driver.set_holds(0)
    before = driver.count_made()
    for _ in range(200):
        op = job.begin()
        op.ended(0, -1)
        assert comes(lambda op=op: job.has_ended(op))
    # Of the op, of the one before it, and of one that the reader lets go of right now.
    assert driver.count_made() - before <= 6


def test_the_reader_looks_once_more_as_it_closes(
    job: Job, driver: ctypes.CDLL, reader: EventReader
) -> None:
    op = job.begin()
    op.ended(0, -1)
    spin_ms(40)  # so old that the next look would be a while from now
    driver.pass_next(1.0)
    driver.pass_next(2.0)
    reader.close()
    assert job.find(op).status == Status.OK


def test_a_forked_child_records_no_events(queued: QueuedOps, driver: ctypes.CDLL) -> None:
    driver.set_holds(0)
    assert queued.begin(0, True).has_event
    child = os.fork()
    if child == 0:
        os._exit(1 if queued.begin(0, True).has_event else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_driver_without_these_functions_is_told() -> None:
    with pytest.raises(NativeError, match="no cuEvent"):
        StreamEvents("libm.so.6")
