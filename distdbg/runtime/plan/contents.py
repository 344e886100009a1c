"""What bytes mean in a simulation: a range of memory as intervals of symbolic values.

A value says where bytes come from, never what they are: which ranks' input blocks were folded into
them, in which order. It is written relative to a coordinate, so that moving a value is one
addition, and memory of any size costs as much as it has differently filled parts.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

#: One contribution: rank, input block, and its byte's distance from the value's coordinate.
Term = tuple[int, int, int]


#: How a value was folded: for each operand how many terms it has, and its own shape. Nothing for a
#: single term, and for a fold of single terms. Floating-point results are equal bit for bit where terms
#: and shapes are.
Shape = tuple[tuple[int, "Shape"], ...]

#: What folding values that were divided differently often adds to their count.
_UNEVEN = 1000


@dataclass(frozen=True, slots=True)
class Value:
    """Contributions in the order of folding, and how often they were divided for an average."""

    terms: tuple[Term, ...]
    #: FOLD_ALL and DIVIDE divide once.
    folds: int
    shape: Shape = ()

    def __str__(self) -> str:
        names = [f"rank {rank} block {block}" for rank, block, _ in self.terms]
        if len(names) > 4:
            names = [*names[:3], "...", names[-1]]
        text = " + ".join(names)
        return text if self.folds == len(self.terms) == 1 or self.folds == 0 else f"fold({text})"


#: What byte x of an interval holds: byte x + shift of the value. None: nothing of this plan.
Content = tuple[Value, int] | None

#: An interval: begin, end, content.
Interval = tuple[int, int, Content]


class SymbolicMemory:
    """`nbytes` of symbolic bytes; adjacent intervals with the same content are one."""

    __slots__ = ("_begins", "_contents", "nbytes")

    def __init__(self, nbytes: int, content: Content = None) -> None:
        self.nbytes = nbytes
        self._begins = [0]
        self._contents: list[Content] = [content]

    def clear(self) -> None:
        """Forget everything."""
        self._begins = [0]
        self._contents = [None]

    def read(self, begin: int, end: int) -> list[Interval]:
        """The intervals of [begin, end), cut at its ends."""
        begins, contents = self._begins, self._contents
        i = bisect_right(begins, begin) - 1
        intervals: list[Interval] = []
        while begin < end:
            last = begins[i + 1] if i + 1 < len(begins) else self.nbytes
            intervals.append((begin, min(end, last), contents[i]))
            begin = last
            i += 1
        return intervals

    def write(self, begin: int, end: int, content: Content) -> None:
        """Fill [begin, end), which must not be empty."""
        begins, contents = self._begins, self._contents
        first = bisect_right(begins, begin) - 1
        last = bisect_right(begins, end - 1) - 1
        new_begins, new_contents = [begin], [content]
        if begins[first] < begin:
            new_begins.insert(0, begins[first])
            new_contents.insert(0, contents[first])
        elif first > 0:
            first -= 1
            new_begins.insert(0, begins[first])
            new_contents.insert(0, contents[first])
        last_end = begins[last + 1] if last + 1 < len(begins) else self.nbytes
        if end < last_end:
            new_begins.append(end)
            new_contents.append(contents[last])
        elif last + 1 < len(begins):
            last += 1
            new_begins.append(begins[last])
            new_contents.append(contents[last])
        kept = [
            i for i in range(len(new_begins)) if i == 0 or new_contents[i] != new_contents[i - 1]
        ]
        begins[first : last + 1] = [new_begins[i] for i in kept]
        contents[first : last + 1] = [new_contents[i] for i in kept]


def moved(content: Content, distance: int) -> Content:
    """`content` as it is after its bytes were moved up by `distance`."""
    return None if content is None else (content[0], content[1] - distance)


def folded(contents: list[Content], *, divides: bool = True) -> Content:
    """What folding `contents`, one for each operand from left to right, gives."""
    if len(contents) == 1 and not divides:
        return contents[0]
    terms: list[Term] = []
    shape: list[tuple[int, Shape]] = []
    folds: set[int] = set()
    origin = 0
    for content in contents:
        if content is None:
            return None
        value, shift = content
        if not terms:
            origin = shift + value.terms[0][2]
        terms += [(rank, block, at + shift - origin) for rank, block, at in value.terms]
        shape.append((len(value.terms), value.shape))
        folds.add(value.folds)
    is_flat = all(count == 1 for count, _ in shape)
    divided = max(folds) + (_UNEVEN if len(folds) > 1 else 0) + divides
    return Value(tuple(terms), divided, () if is_flat else tuple(shape)), origin


def divided(content: Content) -> Content:
    """What dividing gives."""
    if content is None:
        return None
    value, shift = content
    return Value(value.terms, value.folds + 1, value.shape), shift
