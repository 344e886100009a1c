"""assert_same: whether values are equal on all ranks, and the first place where they differ.

    round 1      every rank's hash of everything, one small all_gather; equal: done
    round 2      the hash, dtype and shape of each array, by name: the first that differs
    rounds 3...  hashes of ever smaller parts of that array, then the elements of the last part

If all is equal only the first round runs; only hashes and one small part are exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from distdbg.check.arrays import differing_ranks, few, say_ranks, say_where
from distdbg.errors import DivergedError, UsageError
from distdbg.ops.dtypes import Dtype
from distdbg.ops.sites import call_site, shorten
from distdbg.record.writing import write_error
from distdbg.runtime.api.collectives import all_gather_into_tensor
from distdbg.runtime.api.objects import all_gather_object
from distdbg.runtime.arrays.buffers import as_input
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.groups.group_argument import Group, resolve

#: Parts of an array that are hashed on their own in one round, and the last part's size.
_PARTS = 256
_LAST_NBYTES = 4096
_BY_LABEL = {dtype.label: dtype for dtype in Dtype}
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array or plain value, as this rank has it."""

    #: 'float32[3,4]', or the type of a plain value.
    form: str
    hash: int
    nbytes: int
    itemsize: int
    #: Hash of a range of bytes, and the bytes themselves.
    hash_range: Callable[[int, int], int]
    read: Callable[[int, int], bytes]


def assert_same(x: Any, group: Group = None, what: str | None = None) -> None:
    """Raise DivergedError on all ranks unless `x` is the same on all of them, bit for bit.

    A collective. `x` is an array, a plain value, a list or dict of such, nested or not, or anything
    with a state_dict(); `what` is what the error calls it. Arrays are read where they are, at the cost
    of one pass over them and an all_gather of 8 bytes per rank.

    The error names the first name whose array differs, the odd ranks, and the first element that
    differs with its values. NaNs of equal bits are the same; 0.0 and -0.0 are not.
    """
    if what is not None and not isinstance(what, str):
        raise UsageError(f"assert_same: what is {what!r}; expected a text")
    pg = resolve(group, "assert_same")
    if pg is None:
        return
    leaves = dict(_leaves(x))
    mine = blake2b(digest_size=8)
    for name, leaf in leaves.items():
        mine.update(f"{name}\0{leaf.form}\0{leaf.hash:016x}\n".encode())
    if len(set(_gather_words(pg, mine.digest()))) > 1:
        error = _find(pg, leaves, what)
        if pg.world.recorder is not None:
            write_error(pg.world.recorder, pg.record_number, 0, error)
        raise error


def _gather_words(pg: ProcessGroup, digest: bytes) -> list[int]:
    words = np.zeros(pg.size(), np.uint64)
    all_gather_into_tensor(words, np.frombuffer(digest, np.uint64), group=pg)
    return words.tolist()


def _gather(pg: ProcessGroup, mine: object) -> list[Any]:
    everybody: list[Any] = [None] * pg.size()
    all_gather_object(everybody, mine, group=pg)
    return everybody


def _leaves(x: Any, path: str = "") -> Iterator[tuple[str, Leaf]]:
    """Every array and plain value in x, with its name: '', 'layer.weight', 'list[3]'."""
    if callable(getattr(x, "state_dict", None)):
        x = x.state_dict()
    if isinstance(x, Mapping):
        for key, value in x.items():
            yield from _leaves(value, f"{path}.{key}" if path else str(key))
    elif isinstance(x, (list, tuple)):
        for index, value in enumerate(x):
            yield from _leaves(value, f"{path}[{index}]")
    elif isinstance(x, _PLAIN):
        yield path, _plain_leaf(x)
    else:
        yield path, _array_leaf(x, path or "x")


def _plain_leaf(x: object) -> Leaf:
    text = repr(x).encode()
    digest = blake2b(text, digest_size=8).digest()
    return Leaf(
        form=type(x).__name__,
        hash=int.from_bytes(digest, "little"),
        nbytes=0,
        itemsize=1,
        hash_range=lambda begin, end: 0,
        read=lambda begin, end: text,
    )


def _array_leaf(x: Any, name: str) -> Leaf:
    try:
        view = as_input(x, name)
    except UsageError as error:
        raise error.named("assert_same") from error.__cause__
    dtype = Dtype(view.dtype) if view.dtype >= 0 else None
    shape = ",".join(map(str, view.shape))
    return Leaf(
        form=f"{dtype.label if dtype is not None else 'bytes'}[{shape}]",
        hash=view.hash(0, view.nbytes),
        nbytes=view.nbytes,
        itemsize=dtype.itemsize if dtype is not None else 1,
        hash_range=lambda begin, end: view.hash(begin, end - begin),
        read=lambda begin, end: view.read(begin, end - begin),
    )


def _find(pg: ProcessGroup, leaves: Mapping[str, Leaf], what: str | None) -> DivergedError:
    everybody = _gather(pg, {name: (leaf.form, leaf.hash) for name, leaf in leaves.items()})
    # In the order of rank 0, then what only others have.
    names = dict.fromkeys(name for ranks_leaves in everybody for name in ranks_leaves)
    for name in names:
        marks = [ranks_leaves.get(name) for ranks_leaves in everybody]
        if len(set(marks)) > 1:
            break
    else:
        return _error(pg, what, "", marks=[tuple(each) for each in everybody], how="in its order")
    forms = [None if mark is None else mark[0] for mark in marks]
    if len(set(forms)) > 1:
        shown = ["nothing" if form is None else form for form in forms]
        return _error(pg, what, name, marks=forms, how="in form", values=shown)
    if leaves[name].nbytes == 0:
        texts = _gather(pg, leaves[name].read(0, 0))
        shown = [text.decode()[:100] for text in texts]
        return _error(pg, what, name, marks=[mark[1] for mark in marks], values=shown)
    return _find_element(pg, leaves[name], what, name, [mark[1] for mark in marks])


def _find_element(
    pg: ProcessGroup, leaf: Leaf, what: str | None, name: str, marks: Sequence[object]
) -> DivergedError:
    begin, end = 0, leaf.nbytes
    while end - begin > _LAST_NBYTES:
        items = (end - begin) // leaf.itemsize
        part = -(-items // _PARTS) * leaf.itemsize
        cuts = range(begin, end, part)
        everybody = _gather(pg, [leaf.hash_range(at, min(end, at + part)) for at in cuts])
        at = _first_difference(everybody)
        if at is None:
            return _changes(pg, what, name, marks)
        begin, end = cuts[at], min(end, cuts[at] + part)
    size = leaf.itemsize
    memory = leaf.read(begin, end)
    elements = [memory[at : at + size] for at in range(0, len(memory), size)]
    everybody = _gather(pg, elements)
    at = _first_difference(everybody)
    if at is None:
        return _changes(pg, what, name, marks)
    values = [_show(theirs[at], leaf.form) for theirs in everybody]
    return _error(pg, what, name, marks=marks, values=values, index=begin // size + at)


def _first_difference(everybody: Sequence[Sequence[object]]) -> int | None:
    for index, entries in enumerate(zip(*everybody, strict=True)):
        if any(entry != entries[0] for entry in entries):
            return index
    return None


def _changes(
    pg: ProcessGroup, what: str | None, name: str, marks: Sequence[object]
) -> DivergedError:
    return _error(pg, what, name, marks=marks, how="and is being written to")


def _show(element: bytes, form: str) -> str:
    dtype = _BY_LABEL.get(form.partition("[")[0])
    return element.hex() if dtype is None else str(np.frombuffer(element, dtype.to_numpy())[0])


def _error(
    pg: ProcessGroup,
    what: str | None,
    key: str,
    *,
    marks: Sequence[object],
    how: str = "",
    values: Sequence[str] = (),
    index: int = -1,
) -> DivergedError:
    subject = " ".join(part for part in (what, f"'{key}'" if key else "") if part) or "the array"
    if index >= 0:
        subject += f" from element {index} on"
    if how:
        subject += f" {how}"
    odd = differing_ranks(marks, pg.ranks)
    whose = (
        f"on {say_ranks(odd)}"
        if len(odd) == len(pg.ranks)
        else f"on {say_ranks(odd)} from the other ranks'"
    )
    sides: dict[str, list[int]] = {}
    for rank, value in zip(pg.ranks, values, strict=False):
        sides.setdefault(value, []).append(rank)
    sites = _gather(pg, call_site())  # all ranks come here, or none
    short = shorten(set(sites))
    return DivergedError(
        f"assert_same on group '{pg.label}': {subject} differs {whose}",
        key=key,
        index=index,
        values=values,
        kind="assert_same",
        group=pg.label,
        ranks=odd,
        details=[
            *few([f"{value} on {say_ranks(ranks)}" for value, ranks in sides.items()]),
            *say_where([short[site] for site in sites], pg.ranks),
            "the group is still usable",
        ],
    )
