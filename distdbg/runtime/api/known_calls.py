"""Calls that look like one of before, which native code carries out alone (native/bindings/known_calls.hpp).

The functions of collectives.py and p2p.py ask `known_collective` and `known_message` first. What they get:

    None, a rank     the op was carried out
    Work             the op was begun: async_op=True
    NativeError      raised: it was, and failed. The function goes on to its Call, and `run_known` fails that
    False, True      the call goes the Python way
    bytes            the same, and when it has gone well `run_known` keeps what became of it

So the rules are in one place, and what is kept is what they led to. A group has its calls known while it is
the plain case: any change of an attribute of the group ends that (`ProcessGroup.__setattr__`), and the next
call of it has the group looked at again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from distdbg.errors import InternalError, UsageError
from distdbg.native import BegunOp, KnownCaller, KnownCalls, NativeError, View
from distdbg.ops.call import Call, Kind, LikeCall
from distdbg.ops.dtypes import CARRIERS, Dtype
from distdbg.ops.reduce_op import RedOpType
from distdbg.runtime.arrays.buffers import as_input, as_output
from distdbg.runtime.backends.pending import CpuPending
from distdbg.runtime.groups.group import PLAIN_RUN, ProcessGroup
from distdbg.runtime.handles.work import Work
from distdbg.runtime.latent_errors.unwaited import StartedOp
from distdbg.runtime.process.world import current_world
from distdbg.runtime.recorder import torch_profiler

if TYPE_CHECKING:
    from distdbg.runtime.api.arguments import Array

#: What a call is known by, see above.
Likeness = object


def _unfold(begun: BegunOp) -> None:
    """Make what a group has of an op that it was given the Python way; see native/bindings/begun_op.hpp."""
    is_taken = begun.made is not None
    while not is_taken:
        was_over = begun.is_over
        call, pending, started = _parts(begun, was_over)
        is_taken = begun.take((call, pending, started), started, was_over)


def _parts(begun: BegunOp, is_over: bool) -> tuple[Call, CpuPending, StartedOp | None]:
    outputs = () if begun.output is None else (begun.output,)
    inputs = outputs if begun.input is None else (begun.input,)
    call = LikeCall(begun.like, inputs, outputs)
    views = begun.views or ()
    pending = CpuPending(begun.engine, call, begun.handle, views)
    if is_over:
        pending.note_end()
        return call, pending, None
    begun.engine.keep(pending)
    unwaited = begun.group.world.unwaited
    if unwaited is None or not unwaited.latent.is_on:
        return call, pending, None
    # One that was left was alone: who comes later is compared with it, not it with others.
    make = partial(StartedOp, unwaited) if begun.is_left else unwaited.start
    return call, pending, make(begun.group, call, pending, begun.handle.site, views)


_caller = KnownCaller(
    current_world, ProcessGroup, PLAIN_RUN, RedOpType, vars(torch_profiler), Work, _unfold
)
known_collective = _caller.collective
known_message = _caller.message


def run_known(
    pg: ProcessGroup,
    call: Call,
    likeness: Likeness,
    arrays: Sequence[Array],
    chosen: object = None,
    result: int | None = None,
) -> int:
    """Give a blocking op to the group, unless it was carried out and failed, and learn from it.

    `arrays` are the caller's: the output, then the input where that is another. `chosen`: its reduce op.
    `result`: what a recv returns.
    """
    if isinstance(likeness, NativeError):
        _fail(pg, call, likeness)
    source = pg.run(call)
    _learn_from(pg, call, likeness, arrays, chosen, result)
    return source


def start_known(
    pg: ProcessGroup,
    call: Call,
    likeness: Likeness,
    arrays: Sequence[Array],
    chosen: object = None,
) -> Work:
    """The same of an op that goes on."""
    if isinstance(likeness, NativeError):
        _fail(pg, call, likeness)
    work = pg.run(call, True)
    _learn_from(pg, call, likeness, arrays, chosen, None)
    return work


def _learn_from(
    pg: ProcessGroup,
    call: Call,
    likeness: Likeness,
    arrays: Sequence[Array],
    chosen: object,
    result: int | None,
) -> None:
    """After a call that the group has taken."""
    if isinstance(likeness, bytes):
        _learn(pg, call, likeness, arrays, chosen, result)
    else:
        if pg.known_calls is None:
            _look_at(pg)
        if torch_profiler.profiler is not None and not _caller.has_met_torch:
            _meet_torch()


def _fail(pg: ProcessGroup, call: Call, error: NativeError) -> NoReturn:
    # Asked of the engine that carried it out, which the group may have left meanwhile.
    fail = getattr(pg.known_engine, "fail_known", None)
    if fail is None:
        raise InternalError(f"an op failed on a group that knows none: {error}") from error
    try:
        fail(call, error)
    except UsageError as public:
        raise public.named(call.name or call.kind.label) from public.__cause__
    raise InternalError("an op that failed has no error") from error


def _learn(
    pg: ProcessGroup,
    call: Call,
    likeness: bytes,
    arrays: Sequence[Array],
    chosen: object,
    result: int | None,
) -> None:
    calls = pg.known_calls
    if not isinstance(calls, KnownCalls):
        return  # it has changed meanwhile
    kept = (chosen, *[_numpy_dtype(array) for array in arrays])
    if not _is_plain(pg, call, arrays):
        calls.learn_impossible(likeness, kept)
        return
    inputs, outputs = _views(pg, call)
    if not all(
        _caller.sees(array, view) for array, view in zip(arrays, (*outputs, *inputs), strict=False)
    ):
        calls.learn_impossible(likeness, kept)
    elif call.kind >= Kind.SEND:
        view = (inputs or outputs)[0]
        calls.learn_message(likeness, kept, view, call.peer, call.tag, result)
    else:
        like = Call(call.kind, (), (), call.op, call.root, name=call.name)
        calls.learn_collective(likeness, kept, like, code_of(call), inputs, outputs, call.extra)


def _is_plain(pg: ProcessGroup, call: Call, arrays: Sequence[Array]) -> bool:
    """Whether the op works on the caller's own arrays, with another rank, and on no more than one of each."""
    if call.extra or call.part is not None or call.side is not None or call.agreed is not None:
        return False
    if call.input_splits is not None or call.output_splits is not None:
        return False
    given = [*call.outputs] if call.inputs is call.outputs else [*call.outputs, *call.inputs]
    if len(given) != len(arrays) or any(a is not b for a, b in zip(given, arrays, strict=True)):
        return False
    return call.kind < Kind.SEND or call.peer not in (-1, pg.rank())


def _views(pg: ProcessGroup, call: Call) -> tuple[tuple[View, ...], tuple[View, ...]]:
    """As the engine makes them."""
    if call.inputs is call.outputs:
        reads = call.kind is Kind.BROADCAST and call.root == pg.rank()
        both = tuple((as_input if reads else as_output)(array) for array in call.outputs)
        return both, both
    return (
        tuple(as_input(array) for array in call.inputs),
        tuple(as_output(array) for array in call.outputs),
    )


def code_of(call: Call) -> int:
    """Kind, reduce op and root in the one number that native code keeps plans by."""
    return call.kind | (0 if call.op is None else call.op.code << 8) | (call.root + 1) << 16


def _numpy_dtype(array: Array) -> object:
    return array.dtype if type(array) is np.ndarray else array.numpy().dtype


def _look_at(pg: ProcessGroup) -> None:
    """Let the calls of a group be known, if it is the plain case."""
    pg.known_calls = False
    if type(pg) is not ProcessGroup or "run" in vars(pg) or pg.collector is not None:
        return
    engine: Any = pg.engine
    # Asked of its class: what is around an engine, to see each op, may hand on all else.
    if "knows_calls" not in vars(type(engine)) or "run" in vars(engine):
        return
    calls = engine.known_calls
    if calls is None:
        return
    unwaited = pg.world.unwaited
    is_watched = unwaited is not None and unwaited.latent.is_on
    calls.watch(unwaited.in_flight if unwaited is not None and is_watched else [], is_watched)
    pg.known_engine = engine
    pg.known_calls = calls


def _meet_torch() -> None:
    torch: Any = sys.modules["torch"]
    for dtype in Dtype:
        of_torch = getattr(torch, dtype.label, None)
        if of_torch is not None and dtype not in CARRIERS:
            _caller.add_torch_dtype(of_torch)
    _caller.meet_torch(torch.Tensor)
