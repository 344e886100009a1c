"""Random programs, as plain JSON: a world size and a list of steps that every rank walks through.

A step is one op of one group; ranks outside the group pass over it. Steps do not depend on each
other, so any sublist of a program is a program, and hypothesis shrinks by leaving steps out.

Why no program deadlocks: all ranks start the ops of a group in program order, and a rank that waits
for the op of step k is itself past step k. So of all ranks that wait, the one whose op is the
earliest has every other member past that step as well, and its op completes.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from differential.groups import make_groups
from differential.illegal import CASES
from differential.quirks import COLLECTIVE_DTYPES, GATHER_DTYPES, MESSAGE_DTYPES, reduce_ops

Step = dict[str, Any]
Program = dict[str, Any]

MAX_DELAY = 5
"""An asynchronous op is waited for at most so many steps later."""

COUNTS = (0, 1, 2, 3, 7, 8, 17, 64, 255, 1000, 4097, 20_000, 65_537)
"""Lengths around the sizes where a library changes its ways."""


def shapes(*, min_dims: int = 0) -> st.SearchStrategy[list[int]]:
    """Mostly one dimension with a telling length, sometimes others, also none and empty ones."""
    flat = st.sampled_from(COUNTS).map(lambda count: [count])
    small = st.lists(st.integers(0, 4), min_size=max(2, min_dims), max_size=3)
    options = [flat, flat, small]
    if min_dims == 0:
        options.append(st.just([]))
    return st.one_of(options)


def _common(world_size: int, dos: list[str]) -> dict[str, st.SearchStrategy[Any]]:
    return {
        "do": st.sampled_from(dos),
        "group": st.integers(0, len(make_groups(world_size)) - 1),
        "async": st.booleans(),
        "delay": st.lists(st.integers(0, MAX_DELAY), min_size=world_size, max_size=world_size),
    }


def _rooted(world_size: int) -> dict[str, st.SearchStrategy[Any]]:
    # The root is a group rank modulo the group's size; `form` is how the call names it.
    return {
        "root": st.integers(0, world_size - 1),
        "form": st.sampled_from(["global", "group", "positional"]),
    }


def _reducing() -> st.SearchStrategy[tuple[str, str]]:
    return st.sampled_from(COLLECTIVE_DTYPES).flatmap(
        lambda dtype: st.tuples(st.just(dtype), st.sampled_from(reduce_ops(dtype)))
    )


def _build(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.fixed_dictionaries(fields).map(_flatten)


def _flatten(step: Step) -> Step:
    """Two fields that are drawn together become two fields; an excluded combination is changed."""
    if "dtype_op" in step:
        step["dtype"], step["op"] = step.pop("dtype_op")
    if step["do"] == "message" and 0 in step["shape"]:
        step["any_source"] = False
    return step


def collective_steps(world_size: int) -> st.SearchStrategy[Step]:
    """Steps of collectives.py."""

    def build(dos: list[str], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
        return _build(**_common(world_size, dos), **fields)

    dtype = st.sampled_from(COLLECTIVE_DTYPES)
    rooted = _rooted(world_size)
    transposed = st.booleans()
    splits = st.lists(
        st.lists(st.integers(0, 3), min_size=world_size, max_size=world_size),
        min_size=world_size,
        max_size=world_size,
    )
    return st.one_of(
        build(["all_reduce"], dtype_op=_reducing(), shape=shapes(), transposed=transposed),
        build(["broadcast"], dtype=dtype, shape=shapes(), transposed=transposed, **rooted),
        build(["reduce"], dtype_op=_reducing(), shape=shapes(), **rooted),
        build(["all_gather"], dtype=dtype, shape=shapes()),
        build(
            ["all_gather_into_tensor", "all_gather_single"], dtype=dtype, shape=shapes(min_dims=1)
        ),
        build(["gather"], dtype=st.sampled_from(GATHER_DTYPES), shape=shapes(), **rooted),
        build(["scatter"], dtype=dtype, shape=shapes(), **rooted),
        build(["reduce_scatter"], dtype_op=_reducing(), shape=shapes()),
        build(
            ["reduce_scatter_tensor", "reduce_scatter_single"],
            dtype_op=_reducing(),
            shape=shapes(min_dims=1),
        ),
        build(["all_to_all"], dtype=dtype, shape=shapes()),
        build(["all_to_all_single"], dtype=dtype, shape=shapes(min_dims=1)),
        build(
            ["all_to_all_uneven"],
            dtype=dtype,
            splits=splits,  # [from][to], in group ranks
            row=st.lists(st.integers(0, 3), max_size=1),
        ),
        build(["barrier"]),
        build(
            ["all_reduce_coalesced"],
            dtype_op=_reducing(),
            shapes=st.lists(shapes(), min_size=1, max_size=3),
        ),
        build(
            ["all_gather_coalesced"], dtype=dtype, shapes=st.lists(shapes(), min_size=1, max_size=3)
        ),
        build(
            ["coalescing_manager"],
            of=st.sampled_from(["all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor"]),
            dtype_op=_reducing(),
            shapes=st.lists(shapes(min_dims=1), min_size=1, max_size=3),
        ),
    )


def message_steps(world_size: int) -> st.SearchStrategy[Step]:
    """Steps of messages.py that move arrays between two ranks."""
    ends = {"source": st.integers(0, world_size - 1), "hops": st.integers(1, world_size - 1)}
    forms = st.sampled_from(["global", "group"])
    one = _build(
        **_common(world_size, ["message"]),
        **ends,
        dtype=st.sampled_from(MESSAGE_DTYPES),
        shape=shapes(),
        tag=st.integers(0, 3),
        send_async=st.booleans(),
        recv_async=st.booleans(),
        any_source=st.booleans(),
        form=forms,
    )
    batch = _build(
        **_common(world_size, ["batch"]),
        dtype=st.sampled_from(MESSAGE_DTYPES),
        messages=st.lists(
            st.fixed_dictionaries({**ends, "shape": shapes(), "late": st.integers(0, 3)}),
            min_size=1,
            max_size=5,
        ),
        form=forms,
    )
    return st.one_of(one, batch)


_OBJECTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text("abc\u00e9", max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("xyz", max_size=2), inner),
    max_leaves=4,
)


def object_steps(world_size: int) -> st.SearchStrategy[Step]:
    """The object forms; always synchronous."""
    common = {**_common(world_size, ["objects"]), "async": st.just(False)}
    return _build(
        **common,
        **_rooted(world_size),
        of=st.sampled_from(["all_gather", "gather", "broadcast", "scatter", "message"]),
        objects=st.lists(_OBJECTS, min_size=1, max_size=3),
    )


def illegal_steps(world_size: int) -> st.SearchStrategy[Step]:
    """Calls that raise before anything is sent."""
    common = {**_common(world_size, ["illegal"]), "async": st.just(False)}
    return _build(
        **common, case=st.sampled_from(sorted(CASES)), root=st.integers(0, world_size - 1)
    )


def steps(world_size: int) -> st.SearchStrategy[Step]:
    """Any step: half of them collectives, one in eight illegal."""
    # Chosen by a draw of its own: one_of would weigh every operation alike, and lose the messages.
    families = [collective_steps(world_size)] * 4
    families += [message_steps(world_size)] * 2
    families += [object_steps(world_size), illegal_steps(world_size)]
    return st.integers(0, len(families) - 1).flatmap(lambda choice: families[choice])


def programs(world_size: int, max_steps: int = 12) -> st.SearchStrategy[Program]:
    """Whole programs, legal by construction apart from their illegal steps."""
    # The number says whether the step stays. Hypothesis is bad at deleting an element in the middle
    # of a list whose elements differ in size, but good at making a number zero.
    walk = st.lists(st.tuples(st.integers(0, 9), steps(world_size)), max_size=max_steps)
    kept = walk.map(lambda drawn: [step for number, step in drawn if number > 0])
    return kept.map(lambda chosen: {"world_size": world_size, "steps": chosen})
