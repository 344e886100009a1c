"""The collectives of the public API, with torch.distributed's names and arguments.

Each function finds the group, makes a Call (`calls.py` checks it) and gives it to `group.run`.
All return None, or a Work with async_op=True, and take `timeout=`, the limit of this op alone.
Each signature is written out, alike as they are: it is the API that `help`, editors and type checkers show.
Those of small programs' inner loops ask first whether native code knows the call (known_calls.py): then it is
carried out, or begun, at once. What follows is the way of all others, and of each call's first time.
"""

from __future__ import annotations

from collections.abc import Sequence

from distdbg.native import NativeError
from distdbg.ops.call import Call
from distdbg.ops.reduce_op import ReduceOp
from distdbg.runtime.api import arguments, calls
from distdbg.runtime.api.arguments import Array
from distdbg.runtime.api.integers import to_ints
from distdbg.runtime.api.known_calls import Likeness, known_collective, run_known, start_known
from distdbg.runtime.api.options import Timeout, seconds_or_none
from distdbg.runtime.groups.coalesced import limited, start_all
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.groups.group_argument import Group, resolve, to_group_rank
from distdbg.runtime.handles.work import Work

_PLAIN_BARRIER = calls.barrier()  # nobody writes to a Call, so one serves all


def _run(
    group: ProcessGroup,
    call: Call,
    async_op: bool,
    timeout: Timeout,
    likeness: Likeness = None,
    arrays: Sequence[Array] = (),
    op: ReduceOp | None = None,
) -> Work | None:
    """Without a likeness there is nothing to learn from the call."""
    if timeout is not None:
        call.timeout_s = seconds_or_none(timeout)
    if async_op:
        if likeness is None:
            return group.run(call, True)
        return start_known(group, call, likeness, arrays, op)
    if likeness is None:
        group.run(call)
    else:
        run_known(group, call, likeness, arrays, op)
    return None


def all_reduce(
    tensor: Array,
    op: ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    timeout: Timeout = None,
) -> Work | None:
    """Reduce `tensor` over all ranks, in place on every rank."""
    known: Likeness
    try:
        known = known_collective("all_reduce", group, async_op, timeout, op, None, tensor, None)
        if known is None:
            return None
        if type(known) is Work:
            return known
    except NativeError as error:
        known = error
    pg = resolve(group, "all_reduce")
    if pg is None:
        return None
    return _run(pg, calls.all_reduce(tensor, op), async_op, timeout, known, (tensor,), op)


def all_reduce_coalesced(
    tensors: Sequence[Array],
    op: ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    timeout: Timeout = None,
) -> Work | None:
    """Reduce each array of a list over all ranks, in place."""
    pg = resolve(group, "all_reduce_coalesced")
    if pg is None:
        return None
    tensors = [tensors] if not isinstance(tensors, (list, tuple)) else tensors
    arguments.check_one_dtype("all_reduce_coalesced", tensors)
    work = start_all(pg, limited([calls.all_reduce(tensor, op) for tensor in tensors], timeout))
    return _finish(work, async_op)


def broadcast(
    tensor: Array,
    src: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_src: int | None = None,
    timeout: Timeout = None,
) -> Work | None:
    """Send the array of rank `src` to all ranks, in place."""
    known: Likeness
    try:
        known = known_collective(
            "broadcast", group, async_op, timeout, src, group_src, tensor, None
        )
        if known is None:
            return None
        if type(known) is Work:
            return known
    except NativeError as error:
        known = error
    pg = resolve(group, "broadcast")
    if pg is None:
        return None
    root = to_group_rank(pg, "broadcast", "src", src, group_src)
    call = calls.broadcast(pg.size(), tensor, root)
    return _run(pg, call, async_op, timeout, known, (tensor,))


def reduce(
    tensor: Array,
    dst: int | None = None,
    op: ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
    timeout: Timeout = None,
) -> Work | None:
    """Reduce over all ranks into the array of rank `dst`; the others' stay as they are."""
    pg = resolve(group, "reduce")
    if pg is None:
        return None
    root = to_group_rank(pg, "reduce", "dst", dst, group_dst)
    return _run(pg, calls.reduce(pg.size(), pg.rank(), tensor, root, op), async_op, timeout)


def all_gather(
    tensor_list: Sequence[Array],
    tensor: Array,
    group: Group = None,
    async_op: bool = False,
    timeout: Timeout = None,
) -> Work | None:
    """Collect the arrays of all ranks in `tensor_list`, by group rank."""
    pg = resolve(group, "all_gather")
    if pg is None:
        return None
    return _run(pg, calls.all_gather(pg.size(), pg.rank(), tensor_list, tensor), async_op, timeout)


def all_gather_into_tensor(
    output_tensor: Array,
    input_tensor: Array,
    group: Group = None,
    async_op: bool = False,
    timeout: Timeout = None,
) -> Work | None:
    """Collect the arrays of all ranks in one array, one after the other."""
    name = "all_gather_into_tensor"
    known: Likeness
    try:
        known = known_collective(
            name, group, async_op, timeout, None, None, output_tensor, input_tensor
        )
        if known is None:
            return None
        if type(known) is Work:
            return known
    except NativeError as error:
        known = error
    return _all_gather_single(output_tensor, input_tensor, group, async_op, name, timeout, known)


def all_gather_single(
    output_tensor: Array,
    input_tensor: Array,
    group: Group = None,
    async_op: bool = False,
    timeout: Timeout = None,
) -> Work | None:
    """Collect the arrays of all ranks in one array; another name of all_gather_into_tensor."""
    return _all_gather_single(
        output_tensor, input_tensor, group, async_op, "all_gather_single", timeout
    )


def _all_gather_base(
    output_tensor: Array,
    input_tensor: Array,
    group: Group = None,
    async_op: bool = False,
    timeout: Timeout = None,
) -> Work | None:
    """The oldest name of all_gather_into_tensor, which older programs use."""
    return _all_gather_single(
        output_tensor, input_tensor, group, async_op, "_all_gather_base", timeout
    )


def _all_gather_single(
    output: Array,
    array: Array,
    group: Group,
    async_op: bool,
    name: str,
    timeout: Timeout,
    known: Likeness = None,
) -> Work | None:
    pg = resolve(group, name)
    if pg is None:
        return None
    call = calls.all_gather_single(pg.size(), pg.rank(), output, array, None, name)
    return _run(pg, call, async_op, timeout, known, (output, array))


def all_gather_coalesced(
    output_tensor_lists: Sequence[Sequence[Array]],
    input_tensor_list: Sequence[Array],
    group: Group = None,
    async_op: bool = False,
    timeout: Timeout = None,
) -> Work | None:
    """Gather several arrays: output_tensor_lists[r][i] becomes input i of rank r."""
    pg = resolve(group, "all_gather_coalesced")
    if pg is None:
        return None
    all_calls = calls.all_gather_coalesced(
        pg.size(), pg.rank(), output_tensor_lists, input_tensor_list, None, "all_gather_coalesced"
    )
    return _finish(start_all(pg, limited(all_calls, timeout)), async_op)


def gather(
    tensor: Array,
    gather_list: Sequence[Array] | None = None,
    dst: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
    timeout: Timeout = None,
) -> Work | None:
    """Collect the arrays of all ranks in `gather_list` of rank `dst` (rank 0 when not given)."""
    pg = resolve(group, "gather")
    if pg is None:
        return None
    root = to_group_rank(pg, "gather", "dst", dst, group_dst, default=0)
    return _run(
        pg, calls.gather(pg.size(), pg.rank(), tensor, gather_list, root), async_op, timeout
    )


def scatter(
    tensor: Array,
    scatter_list: Sequence[Array] | None = None,
    src: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_src: int | None = None,
    timeout: Timeout = None,
) -> Work | None:
    """Give each rank its array of `scatter_list` of rank `src` (rank 0 when not given)."""
    pg = resolve(group, "scatter")
    if pg is None:
        return None
    root = to_group_rank(pg, "scatter", "src", src, group_src, default=0)
    return _run(
        pg, calls.scatter(pg.size(), pg.rank(), tensor, scatter_list, root), async_op, timeout
    )


def reduce_scatter(
    output: Array,
    input_list: Sequence[Array],
    op: ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    timeout: Timeout = None,
) -> Work | None:
    """Reduce the lists of all ranks block by block; rank r gets block r."""
    pg = resolve(group, "reduce_scatter")
    if pg is None:
        return None
    return _run(
        pg, calls.reduce_scatter(pg.size(), pg.rank(), output, input_list, op), async_op, timeout
    )


def reduce_scatter_tensor(
    output: Array,
    input: Array,
    op: ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    timeout: Timeout = None,
) -> Work | None:
    """Reduce `input` over all ranks; rank r gets part r of it."""
    name = "reduce_scatter_tensor"
    known: Likeness
    try:
        known = known_collective(name, group, async_op, timeout, op, None, output, input)
        if known is None:
            return None
        if type(known) is Work:
            return known
    except NativeError as error:
        known = error
    return _reduce_scatter_single(output, input, op, group, async_op, name, timeout, known)


def reduce_scatter_single(
    output: Array,
    input: Array,
    op: ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    timeout: Timeout = None,
) -> Work | None:
    """Reduce `input`; rank r gets part r. Another name of reduce_scatter_tensor."""
    return _reduce_scatter_single(
        output, input, op, group, async_op, "reduce_scatter_single", timeout
    )


def _reduce_scatter_base(
    output: Array,
    input: Array,
    op: ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    timeout: Timeout = None,
) -> Work | None:
    """The oldest name of reduce_scatter_tensor, which older programs use."""
    return _reduce_scatter_single(
        output, input, op, group, async_op, "_reduce_scatter_base", timeout
    )


def _reduce_scatter_single(
    output: Array,
    array: Array,
    op: ReduceOp,
    group: Group,
    async_op: bool,
    name: str,
    timeout: Timeout,
    known: Likeness = None,
) -> Work | None:
    pg = resolve(group, name)
    if pg is None:
        return None
    call = calls.reduce_scatter_single(pg.size(), output, array, op, None, name)
    return _run(pg, call, async_op, timeout, known, (output, array), op)


def all_to_all(
    output_tensor_list: Sequence[Array],
    input_tensor_list: Sequence[Array],
    group: Group = None,
    async_op: bool = False,
    timeout: Timeout = None,
) -> Work | None:
    """Give array r of the inputs to rank r; array r of the outputs comes from rank r."""
    pg = resolve(group, "all_to_all")
    if pg is None:
        return None
    call = calls.all_to_all(pg.size(), pg.rank(), output_tensor_list, input_tensor_list)
    return _run(pg, call, async_op, timeout)


def all_to_all_single(
    output: Array,
    input: Array,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Group = None,
    async_op: bool = False,
    timeout: Timeout = None,
) -> Work | None:
    """Exchange parts of one array, cut along its first dimension, evenly or by the splits."""
    name = "all_to_all_single"
    known: Likeness
    try:
        known = known_collective(
            name, group, async_op, timeout, output_split_sizes, input_split_sizes, output, input
        )
        if known is None:
            return None
        if type(known) is Work:
            return known
    except NativeError as error:
        known = error
    pg = resolve(group, name)
    if pg is None:
        return None
    call = calls.all_to_all_single(
        pg.size(), pg.rank(), output, input, output_split_sizes, input_split_sizes
    )
    return _run(pg, call, async_op, timeout, known, (output, input))


def barrier(
    group: Group = None,
    async_op: bool = False,
    device_ids: Sequence[int] | None = None,
    timeout: Timeout = None,
) -> Work | None:
    """Wait until all ranks of the group have called it."""
    known: Likeness
    try:
        known = known_collective("barrier", group, async_op, timeout, device_ids, None, None, None)
        if known is None:
            return None
        if type(known) is Work:
            return known
    except NativeError as error:
        known = error
    if device_ids is not None:
        # It chooses a GPU for the wait in torch; host memory has nothing to choose.
        to_ints("barrier", "device_ids", device_ids)
    pg = resolve(group, "barrier")
    if pg is None:
        return None
    call = _PLAIN_BARRIER if timeout is None else calls.barrier()
    return _run(pg, call, async_op, timeout, known)


def _finish(work: Work, async_op: bool) -> Work | None:
    if async_op:
        return work
    work.wait()
    return None
