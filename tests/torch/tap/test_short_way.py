"""The short way of ops: the same facts, errors and side effects as the long one."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from begin import begin, treat_engines_as

from distdbg.errors import CollectiveError, MismatchError, OpTimeout, PeerLost
from distdbg.native import NativeError
from distdbg.record.entries import OpEntry
from distdbg.record.reader import read_record

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.ranks, pytest.mark.slow]


def tapped_groups() -> Any:
    from distdbg.torch_bridge.guarded import state

    return state["job"]._groups


def caught(function: Callable[[], object]) -> RuntimeError:
    with pytest.raises(RuntimeError) as info:
        function()
    return info.value


def both_ways() -> int:
    dist = begin()
    groups = tapped_groups()
    lanes = dict(groups.lanes)
    rank = dist.get_rank()

    def ops() -> None:
        x, flat, half = torch.ones(4), torch.zeros(8), torch.zeros(2)
        dist.all_reduce(x)
        dist.all_reduce(x.double(), op=dist.ReduceOp.MAX)
        dist.all_reduce(x.int(), op=dist.ReduceOp.SUM, async_op=True).wait()
        dist.broadcast(x, 1)
        dist.broadcast(torch.ones(2, 3).t(), 0, async_op=True).wait()
        dist.all_gather_single(flat, x)
        dist.reduce_scatter_single(half, x, op=dist.ReduceOp.MIN)
        dist.all_gather([torch.zeros(4), torch.zeros(4)], x)
        dist.barrier()
        if rank:
            dist.send(x, 0, tag=3)
        else:
            dist.recv(x, 1, tag=3)
        work = dist.isend(x, 1 - rank)
        dist.irecv(half.new_zeros(4), 1 - rank).wait()
        work.wait()

    for way in range(4):
        for tapped in groups.all():
            tapped.lane = None if way % 2 else lanes[tapped.theirs.group]
        groups.lanes.clear()
        groups.lanes.update({} if way % 2 else lanes)
        ops()
    assert not groups.lane_ops or all(op.work() is None for op in groups.lane_ops.values())
    dist.destroy_process_group()
    return len(lanes)


def facts(op: OpEntry) -> tuple[Any, ...]:
    assert op.ended_ns is not None
    assert op.ended_ns > op.issued_ns
    lines = [(Path(frame.file).name, frame.line) for frame in op.stack[:1]]
    assert op.is_end_noticed is op.is_message  # torch's futures tell when other ops end
    return (op.kind, op.form, op.peer, op.tag, op.is_async, op.status, op.level, lines)


def both_ways_where_ops_are_queued() -> int:
    """Gloo's ops, as if its futures were done when a device has the op."""
    from distdbg.native import QueuedOps
    from distdbg.torch_bridge.tap import engine, lane, lane_message, queued

    for module in (engine, lane, lane_message):  # without events, as of GPUs that are not NVIDIA's
        module.device_of = lambda tensors: queued.WITHOUT_EVENTS  # type: ignore[attr-defined]
    treat_engines_as(queued=QueuedOps(None, None, None, None))
    return both_ways()


@pytest.mark.parametrize("level", ["info", "off"])
def test_the_record_says_that_a_device_ends_its_ops_later(
    watched: Callable[..., list[Any]], level: str, tmp_path: Path
) -> None:
    watched(both_ways_where_ops_are_queued, level)
    for path in sorted((tmp_path / "run").glob("*.ddr")):
        ops = [op for op in read_record(path).ops if not op.is_aside]
        assert len(ops) >= 44
        for op in ops:
            assert (op.is_end_queued, op.is_end_noticed) == (True, False)


@pytest.mark.parametrize("level", ["info", "detail", "off"])
def test_both_ways_record_the_same_facts(
    watched: Callable[..., list[Any]], level: str, tmp_path: Path
) -> None:
    assert watched(both_ways, level) == [1, 1]
    for path in sorted((tmp_path / "run").glob("*.ddr")):
        ops = [op for op in read_record(path).ops if not op.is_aside]
        count = len(ops) // 4
        ways = [ops[count * way : count * (way + 1)] for way in range(4)]
        assert count >= 11
        assert [op.seq for op in ops if not op.is_message] == list(
            range(1, sum(not op.is_message for op in ops) + 1)
        )
        for short, long in zip(ways[0], ways[1], strict=True):
            assert facts(short) == facts(long)
        assert {frame[0] for op in ops for frame in facts(op)[-1]} == {"test_short_way.py"}
        forms = [op.form for op in ways[0] if op.form is not None]
        assert [form.op for form in forms[:3]] == ["SUM", "MAX", "SUM"]
        assert [form.root for form in forms[3:5]] == [1, 0]


def changes() -> list[int]:
    dist = begin()
    x, flat, half = torch.ones(4), torch.zeros(8), torch.zeros(2)
    dist.all_reduce(x)
    dist.all_gather_single(flat, x)
    dist.reduce_scatter_single(half, x)
    dist.destroy_process_group()
    return [x._version, flat._version, half._version]


def test_changes_in_place_are_counted_as_without_us(watched: Callable[..., list[Any]]) -> None:
    assert watched(changes, "info") == [[0, 1, 1]] * 2


def inference() -> list[str]:
    dist = begin()
    import torch.distributed._functional_collectives as functional

    with torch.inference_mode():
        x = torch.ones(4)
        most = functional.all_reduce(x * (dist.get_rank() + 1), "max", dist.group.WORLD)
        assert float(most.sum()) == 8.0
        functional.all_gather_tensor(x, 0, dist.group.WORLD).sum()
        dist._broadcast_coalesced(dist.group.WORLD, [torch.ones(3)], 1 << 20, 0)
        dist.all_reduce(x)
    dist.destroy_process_group()
    return []


def test_ops_of_cpp_in_inference_mode_are_seen(
    watched: Callable[..., list[Any]], tmp_path: Path
) -> None:
    watched(inference)
    for path in sorted((tmp_path / "run").glob("*.ddr")):
        ops = read_record(path).ops
        assert [op.kind_label for op in ops] == [
            "all_reduce", "all_gather", "broadcast", "all_reduce",
        ]  # fmt: skip
        assert [op.form.op for op in ops if op.form and op.form.op] == ["MAX", "SUM"]


def under_a_mode() -> int:
    dist = begin()
    from torch.utils._python_dispatch import TorchDispatchMode

    class Passing(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    with Passing():
        dist.all_reduce(torch.ones(4))
    dist.destroy_process_group()
    return 0


def test_an_op_in_a_dispatch_mode_is_recorded_once(
    watched: Callable[..., list[Any]], tmp_path: Path
) -> None:
    watched(under_a_mode)
    for path in sorted((tmp_path / "run").glob("*.ddr")):
        assert [op.name for op in read_record(path).ops] == ["all_reduce"]


def differing() -> list[str]:
    dist = begin()
    rank = dist.get_rank()
    x = torch.ones(4)
    dist.all_reduce(x)
    errors = [
        caught(lambda: dist.all_reduce(torch.ones(3 + rank))),
        caught(lambda: dist.all_reduce(torch.ones(3 + rank), async_op=True)),
        caught(lambda: dist.broadcast(torch.ones(3), rank)),
        caught(lambda: dist.all_gather_single(torch.ones(8), torch.ones(4).to(_DTYPES[rank]))),
    ]
    dist.all_reduce(x)  # nothing was exchanged
    assert x.tolist() == [4.0] * 4
    dist.destroy_process_group()
    assert all(isinstance(error, MismatchError) for error in errors)
    return [str(error) for error in errors]


_DTYPES = (torch.float32, torch.float64)


def test_differences_are_raised_before_anything_starts(watched: Callable[..., list[Any]]) -> None:
    for first, again, roots, dtypes in watched(differing):
        assert "float32[3] on rank 0" in first
        assert "float32[4] on rank 1" in again
        assert "root" in roots
        assert "float64" in dtypes
        assert "ranks 0-1 called all_reduce at test_short_way.py:" in first
        assert "torch/distributed" not in first


class GivesUpEarly:
    """A control group whose first wait for an agreement gives up before all agree, and says so after it."""

    def __init__(self, native: Any, on_given_up: Callable[[], None]) -> None:
        self._native = native
        self._on_given_up = on_given_up
        self.waits = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def wait_op(self, handle: Any, deadline_ns: int) -> None:
        self.waits += 1
        if self.waits == 1:
            with pytest.raises(NativeError) as gave_up:
                self._native.wait_op(handle, 0)
            self._on_given_up()
            with suppress(NativeError):
                self._native.wait_op(handle, 2**63 - 1)
            raise gave_up.value
        self._native.wait_op(handle, deadline_ns)


def agrees_late() -> str:
    dist = begin()
    rank, x = dist.get_rank(), torch.ones(4)
    store = dist.distributed_c10d._get_default_store()
    dist.all_reduce(x)
    lane = next(iter(tapped_groups().lanes.values()))

    def reduce_after_the_other_has_given_up(key: str, length: int) -> Any:
        if rank == 1:
            store.wait([key])
            return dist.all_reduce(torch.ones(length), async_op=True)
        native = lane.control._group
        group = lane.control._group = GivesUpEarly(native, partial(store.set, key, ""))
        try:
            return dist.all_reduce(torch.ones(length), async_op=True)
        finally:
            lane.control._group = native
            assert group.waits == 2

    reduce_after_the_other_has_given_up("alike", 4).wait()
    error = caught(lambda: reduce_after_the_other_has_given_up("differing", 3 + rank))
    assert isinstance(error, MismatchError), repr(error)
    dist.all_reduce(x)
    dist.destroy_process_group()
    return str(error)


def test_an_agreement_that_ends_as_its_wait_gives_up_is_what_all_said(
    watched: Callable[..., list[Any]],
) -> None:
    for text in watched(agrees_late):
        assert "float32[3] on rank 0" in text


def differing_at_info() -> str:
    dist = begin()
    rank = dist.get_rank()
    x = torch.ones(4)
    for _ in range(3):
        dist.all_reduce(x)

    def go_on() -> None:
        dist.all_reduce(torch.ones(4), op=_OPS[rank])
        for _ in range(100):
            dist.all_reduce(x)

    error = caught(go_on)
    assert isinstance(error, CollectiveError)
    return str(error)


_OPS = (torch.distributed.ReduceOp.SUM, torch.distributed.ReduceOp.MAX)


def test_a_difference_at_info_is_raised_soon_after(watched: Callable[..., list[Any]]) -> None:
    texts = watched(differing_at_info, "info")
    assert any("SUM" in text and "MAX" in text for text in texts)


def fails_before_its_wait() -> str:
    dist = begin()
    rank, x = dist.get_rank(), torch.ones(4)
    store = dist.distributed_c10d._get_default_store()
    dist.all_reduce(x)
    lane = next(iter(tapped_groups().lanes.values()))
    if rank == 0:
        dist.all_reduce(torch.ones(4), op=_OPS[0], async_op=True)
        second = dist.all_reduce(x, async_op=True)
        store.set("both", "")
        while not second.is_completed():
            time.sleep(0.001)
        error = caught(second.wait)
    else:
        store.wait(["both"])
        dist.all_reduce(torch.ones(4), op=_OPS[1], async_op=True)
        while lane.ops.are_all_well():
            time.sleep(0.001)
        error = caught(lambda: dist.all_reduce(x))  # and closes what the other waits for
    assert isinstance(error, CollectiveError), repr(error)
    return str(error)


def test_an_op_that_has_failed_in_torch_before_its_wait_says_why(
    watched: Callable[..., list[Any]],
) -> None:
    for text in watched(fails_before_its_wait, "info"):
        assert "SUM" in text
        assert "MAX" in text


def sender_dies() -> str:
    dist = begin()
    x = torch.ones(4)
    dist.all_reduce(x)
    if dist.get_rank() == 1:
        time.sleep(0.3)  # the other is in torch's wait by then; nothing announces it
        os._exit(0)
    error = caught(lambda: dist.recv(x, 1))
    assert isinstance(error, PeerLost)
    return str(error)


def test_a_wait_in_torch_ends_when_its_sender_is_gone(
    watched: Callable[..., list[Any]],
) -> None:
    assert "rank 1" in watched(sender_dies, "info")[0]


def reduce_ops_by_options() -> list[float]:
    dist = begin()
    kinds, kept = dist.ReduceOp, dist.AllreduceOptions()
    group = dist.distributed_c10d._get_default_group()
    found = []

    def reduce(options: Any) -> None:
        x = torch.full((2,), dist.get_rank() + 2.0)
        group.allreduce([x], options).wait()
        found.append(float(x[0]))

    kept.reduceOp = kinds.MAX
    for op in (kinds.SUM, kinds.PRODUCT):
        dist.all_reduce(torch.ones(2), op=op)
    reduce(kept)  # others were filled in since
    reduce(kept)
    kept.reduceOp = kinds.MIN
    reduce(dist.AllreduceOptions())  # where nothing was set, it sums
    reduce(kept)
    with pytest.raises(TypeError):
        kept.reduceOp = "sum"
    assert kept.reduceOp == kinds.MIN
    reduce(kept)
    dist.destroy_process_group()
    return found


def test_the_reduce_op_in_the_record_is_that_of_the_options_at_hand(
    watched: Callable[..., list[Any]], tmp_path: Path
) -> None:
    assert watched(reduce_ops_by_options) == [[3.0, 3.0, 5.0, 2.0, 2.0]] * 2
    for path in sorted((tmp_path / "run").glob("*.ddr")):
        forms = [op.form for op in read_record(path).ops if op.form is not None]
        names = ["SUM", "PRODUCT", "MAX", "MAX", "SUM", "MIN", "MIN"]
        assert [form.op for form in forms if form.op] == names


def waits_as_long_as_its_options_say() -> float:
    dist = begin()
    group, store = (
        dist.distributed_c10d._get_default_group(),
        dist.distributed_c10d._get_default_store(),
    )
    x = torch.ones(4)
    for _ in range(2):
        dist.all_reduce(x)  # nobody has set a limit so far
    if dist.get_rank():
        store.wait(["reported"])
        return 0.0
    options = dist.AllreduceOptions()
    options.timeout, options.asyncOp = timedelta(seconds=0.5), False
    with pytest.raises(OpTimeout) as info:
        group.allreduce([x], options)
    store.set("reported", "")
    return info.value.waited_s


def test_a_limit_in_the_options_is_that_of_the_op(watched: Callable[..., list[Any]]) -> None:
    waited_s, _ = watched(waits_as_long_as_its_options_say)
    assert 0.5 <= waited_s < 60


def asks_torch_by_its_python() -> list[bool]:
    from distdbg.native import TorchKeys

    hidden = torch._C._dispatch_tls_set_dispatch_key_excluded
    key = torch._C.DispatchKey.ADInplaceOrView
    # What this torch says by its Python is not what its library says.
    torch._C._dispatch_tls_set_dispatch_key_excluded = lambda key, value: None
    found = [TorchKeys(key).is_direct]
    torch._C._dispatch_tls_set_dispatch_key_excluded = hidden
    dist = begin()
    x = torch.ones(4)
    dist.all_reduce(x)
    dist.destroy_process_group()
    return [*found, float(x[0]) == 2.0]


def test_a_torch_whose_library_says_otherwise_is_asked_by_its_python(
    watched: Callable[..., list[Any]],
) -> None:
    assert watched(asks_torch_by_its_python) == [[False, True]] * 2


def functional_reductions() -> list[float]:
    dist = begin()
    import torch.distributed._functional_collectives as functional

    from distdbg.torch_bridge.tap.groups import TappedGroup

    taken: list[object] = []
    long = TappedGroup.dispatch

    def dispatch(tapped: Any, call: Any, *more: Any) -> Any:
        taken.append(call)
        return long(tapped, call, *more)

    TappedGroup.dispatch = dispatch  # type: ignore[method-assign]  # looked at here alone
    x = torch.full((3,), dist.get_rank() + 1.0)
    found = [
        float(functional.all_reduce(x, word, dist.group.WORLD)[0])
        for word in ("sum", "max", "min", "product", "sum")
    ]
    dist.destroy_process_group()
    return [*found, float(len(taken))]


def test_functional_reductions_take_it_with_the_op_that_their_word_says(
    watched: Callable[..., list[Any]], tmp_path: Path
) -> None:
    assert watched(functional_reductions) == [[3.0, 2.0, 1.0, 2.0, 3.0, 0.0]] * 2
    for path in sorted((tmp_path / "run").glob("*.ddr")):
        ops = [op.form.op for op in read_record(path).ops if op.form and op.form.op]
        assert ops == ["SUM", "MAX", "MIN", "PRODUCT", "SUM"]
