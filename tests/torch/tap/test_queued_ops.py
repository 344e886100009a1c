"""Ops that torch has queued on a device, as NCCL's: the record has when the device did them.

There is no NCCL without a GPU. What stands for it is a backend of torch's own whose ops have ended when they
begin, and a library in place of CUDA's driver, which claims nothing about hardware.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[3]))

from begin import begin, treat_engines_as

from distdbg.record.entries import OpEntry
from distdbg.record.reader import read_record
from tests.support.cuda_stand_in import compile_driver, open_driver

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.ranks, pytest.mark.slow]


@pytest.fixture
def driver(tmp_path: Path) -> dict[str, str]:
    driver = compile_driver(tmp_path)
    if driver is None:
        pytest.skip("a C compiler is missing")
    return {"STAND_IN_DRIVER": driver}


def wait_in(address: int, device: int, future: Any) -> None:
    future.wait()


def as_on_gpus(backend: str, waits: Callable[..., None] = wait_in) -> tuple[Any, Any]:
    """Torch's functions, and the driver: to the tap all tensors are on its GPU."""
    from distdbg.torch_bridge.tap import engine, lane, lane_message, queued

    driver = open_driver(os.environ["STAND_IN_DRIVER"])
    queued.DRIVER = os.environ["STAND_IN_DRIVER"]
    torch._C._cuda_getCurrentRawStream = driver.stream_of
    queued._wait_in = waits
    for module in (engine, lane, lane_message):
        module.device_of = lambda tensors: 0 if tuple(tensors) else -1  # type: ignore[attr-defined]  # mypy: a name of another module
    treat_engines_as(queued=queued.queued_ops())
    if backend == "null":
        from torch.testing._internal.distributed.fake_pg import _create_fake_pg

        make = torch.distributed.Backend.register_backend
        make(backend, _create_fake_pg, extended_api=True, devices=["cpu"])
    return begin(backend), driver


def ops_of(function_dir: Path) -> list[OpEntry]:
    return [op for op in read_record(function_dir).ops if not op.is_aside]


def own_record() -> Path:
    return Path(os.environ["DISTDBG_RUN_DIR"]) / f"rank{int(os.environ['RANK']):05}.ddr"


def ops_that_hang() -> list[list[Any]]:
    dist, driver = as_on_gpus("null")
    x, flat = torch.ones(4), torch.zeros(8)
    driver.set_holds(1)
    dist.all_reduce(x)  # the short way, waited for
    work = dist.all_reduce(x, async_op=True)  # its future calls back at once
    dist.all_gather([torch.zeros(4), torch.zeros(4)], x)  # the long way
    dist.all_to_all_single(flat, flat.clone(), async_op=True).wait()
    work.wait()
    time.sleep(0.3)  # what looks after ops every 100 ms must not end them
    before = [op.ended_ns is not None for op in ops_of(own_record())]
    driver.set_capturing(0, 1)
    dist.all_reduce(x)  # in a graph that is captured
    driver.set_capturing(0, 0)
    dist.barrier()  # has no tensor
    if dist.get_rank():
        dist.recv(x, 0)
    else:
        dist.send(x, 1)
    dist.group.WORLD._start_coalescing(torch.device("cpu"))
    dist.all_reduce(x, async_op=True)  # its device gets it with the block
    dist.group.WORLD._end_coalescing(torch.device("cpu")).wait()
    driver.set_holds(0)
    while driver.pass_next(1.0):
        pass
    ended: list[OpEntry] = []
    deadline = time.monotonic() + 20
    while not ended and time.monotonic() < deadline:
        found = ops_of(own_record())
        ended = found if all(op.ended_ns is not None for op in found) else []
    dist.destroy_process_group()
    before += [True] * (len(ended) - len(before))
    return [
        [op.kind_label, was, op.is_end_queued, op.started_ns is not None]
        for op, was in zip(ended, before, strict=True)
    ]


@pytest.mark.parametrize("level", ["off", "info"])
def test_an_op_is_in_flight_until_its_device_has_done_it(
    watched: Callable[..., list[Any]], driver: dict[str, str], level: str
) -> None:
    for rank, reported in enumerate(watched(ops_that_hang, level, more_env=driver)):
        assert reported == [
            ["all_reduce", False, False, True],
            ["all_reduce", False, False, True],
            ["all_gather", False, False, True],
            ["all_to_all", False, False, True],
            ["all_reduce", True, True, False],
            ["barrier", True, False, False],
            [["send", "recv"][rank], True, False, True],
            ["all_reduce", True, True, False],
        ]


def other_ops() -> list[str]:
    dist, driver = as_on_gpus("null")
    x = torch.ones(4)
    dist.all_reduce(x)
    driver.set_holds(1)
    differing = partial(dist.broadcast, x, 0) if dist.get_rank() else partial(dist.all_reduce, x)
    reported = ""
    deadline = time.monotonic() + 20
    while not reported and time.monotonic() < deadline:
        try:
            differing()
        except RuntimeError as error:
            reported = type(error).__name__
        differing = partial(dist.all_reduce, x)
    driver.set_holds(0)
    while driver.pass_next(1.0):
        pass
    done, broken = ops_of(own_record())[:2]
    return [reported, done.status_label, broken.status_label]


def test_a_group_that_breaks_ends_what_its_device_has_not_done(
    watched: Callable[..., list[Any]], driver: dict[str, str]
) -> None:
    for reported in watched(other_ops, "info", more_env=driver):
        assert reported == ["MismatchError", "ok", "mismatch"]


def ops_of_gloo() -> int:
    dist, _ = as_on_gpus("gloo")
    x, peer = torch.ones(4), 1 - dist.get_rank()
    for _ in range(20):
        dist.all_reduce(x)
        work = dist.all_reduce(x, async_op=True)  # gloo's thread calls back
        dist.all_gather([torch.zeros(4), torch.zeros(4)], x)
        work.wait()
        works = [dist.isend(x, peer), dist.irecv(torch.zeros(4), peer)]
        for each in works:
            each.wait()
    dist.destroy_process_group()
    return 20 * 5


@pytest.mark.parametrize("level", ["info", "detail"])
def test_ends_that_other_threads_tell_are_recorded_as_well(
    watched: Callable[..., list[Any]], driver: dict[str, str], level: str, tmp_path: Path
) -> None:
    counts = watched(ops_of_gloo, level, more_env=driver)
    for rank, count in enumerate(counts):
        ops = ops_of(tmp_path / "run" / f"rank{rank:05}.ddr")
        assert len(ops) == count
        assert all(op.ended_ns is not None and op.status_label == "ok" for op in ops)
        assert not any(op.is_end_queued for op in ops)


def a_late_sender() -> list[str]:
    dist, _ = as_on_gpus("null")
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank():
        dist.irecv(torch.zeros(4), 0).wait()  # of the stream: the host goes on
        store.set("waited", "")
    else:
        store.wait(["waited"])
        dist.isend(torch.ones(5), 1).wait()
    reported: list[str] = []
    deadline = time.monotonic() + 20
    while not reported and time.monotonic() < deadline:
        try:
            dist.all_reduce(torch.ones(1))
        except RuntimeError as error:
            reported = [type(error).__name__, str(error).splitlines()[0]]
    return reported


def test_who_sends_after_the_receiver_has_gone_on_is_compared_all_the_same(
    watched: Callable[..., list[Any]], driver: dict[str, str]
) -> None:
    for kind, words in watched(a_late_sender, "info", more_env=driver):
        assert kind == "MismatchError"
        assert "rank 0 sent 5 float32, rank 1 expects 4 float32" in words


def more_late_senders_than_are_kept() -> list[str]:
    dist, _ = as_on_gpus("null")
    from distdbg.torch_bridge.tap import lane

    lane._MOST_OWED = 1  # type: ignore[misc]  # a constant
    reported: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: reported.append(record.getMessage())  # type: ignore[method-assign]  # of this one
    logging.getLogger("distdbg.torch").addHandler(handler)
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank():
        for _ in range(3):
            dist.irecv(torch.zeros(4), 0).wait()
        store.set("waited", "")
    else:
        store.wait(["waited"])
        for _ in range(3):
            dist.isend(torch.ones(4), 1).wait()
    dist.all_reduce(torch.ones(1))
    return reported


def test_messages_that_are_not_compared_are_told_once(
    watched: Callable[..., list[Any]], driver: dict[str, str]
) -> None:
    nothing, reported = watched(more_late_senders_than_are_kept, "info", more_env=driver)
    assert nothing == []
    assert [words for words in reported if "late" in words] == [
        "[rank 1] group 'world': 1 received messages have senders that are late; what comes beyond them is "
        "not compared with what its sender sent"
    ]


def messages_in_a_block() -> list[list[Any]]:
    dist, driver = as_on_gpus("null")
    x, world, peer = torch.ones(4), dist.group.WORLD, 1 - dist.get_rank()
    driver.set_holds(1)
    world._start_coalescing(torch.device("cpu"))
    works = [dist.isend(x, peer), dist.irecv(x, peer)]
    world._end_coalescing(torch.device("cpu"))
    for work in works:
        work.wait()
    driver.set_holds(0)
    ops = ops_of(own_record())
    dist.destroy_process_group()
    return [[op.ended_ns is not None, op.is_end_queued, op.is_end_noticed] for op in ops]


def test_messages_in_a_block_say_that_they_end_when_they_are_queued(
    watched: Callable[..., list[Any]], driver: dict[str, str]
) -> None:
    for reported in watched(messages_in_a_block, "info", more_env=driver):
        assert reported == [[True, True, False]] * 2


def aborted() -> list[str]:
    dist, driver = as_on_gpus("null")
    driver.set_holds(1)
    dist.all_reduce(torch.ones(4))
    dist.group.WORLD.abort()
    driver.set_holds(0)
    while driver.pass_next(1.0):  # the device lets go of it
        pass
    time.sleep(0.2)  # what looks after ops, and the reader, would have ended them by now
    return [op.status_label for op in ops_of(own_record())]


def test_what_the_program_aborts_has_not_ended_well(
    watched: Callable[..., list[Any]], driver: dict[str, str]
) -> None:
    assert watched(aborted, "info", more_env=driver) == [["broken"]] * 2


def without_a_stream_of_ours() -> list[list[Any]]:
    from distdbg.torch_bridge.tap import queued

    def refuses(address: int, device: int, future: Any) -> None:
        raise AttributeError("module 'torch.cuda' has no attribute 'ExternalStream'")

    dist, _ = as_on_gpus("null", refuses)
    assert queued._wait_in is refuses
    x = torch.ones(4)
    dist.all_reduce(x, async_op=True).wait()
    dist.all_to_all_single(torch.zeros(8), torch.ones(8), async_op=True).wait()
    time.sleep(0.2)  # what looks after ops, and the reader, would have ended them by now
    ops = ops_of(own_record())
    dist.destroy_process_group()
    return [[op.ended_ns is not None, op.is_end_queued] for op in ops]


def test_where_torch_has_no_such_stream_its_callback_tells_the_end(
    watched: Callable[..., list[Any]], driver: dict[str, str]
) -> None:
    for reported in watched(without_a_stream_of_ours, "info", more_env=driver):
        assert reported == [[True, False]] * 2
