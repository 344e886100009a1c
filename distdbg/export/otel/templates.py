"""Spans of ops as JSON, a hundred thousand a second: text of one op with places for what differs in the next.

Two ops of a rank that were called on one line with one form differ in their ids, numbers and times, and in
nothing else of what a span says. So the spans of such an op are made once with numbers that occur nowhere
else, and their JSON is cut where those are. What this must never do is to know what is in a span: `fill`
of a template gives the same letters as `to_json` of the spans, and a template of which that is not so for
the op that it was made for is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Final

from distdbg.export.otel.facts import OpFacts
from distdbg.export.otel.ids import root_span_id, span_id
from distdbg.export.otel.model import SpanData
from distdbg.export.otel.ops import Choice, OpSpans

#: Numbers that nobody else has: 19 digits, as times have.
_SEQ: Final = 8_765_439_012_345_678_901
_NUMBER: Final = 7_654_390_123_456_789_012
_ISSUED_NS: Final = 1_234_567_890_987_654_321
_WAIT_NS: Final = 234_567_890_123_457
_TRANSFER_NS: Final = 345_678_901_234_567

ToJson = Callable[[Iterable[SpanData]], str]


@dataclass(frozen=True, slots=True)
class Template:
    """The spans of ops that differ in numbers alone."""

    text: str
    """With %s where the numbers go."""
    pick: Callable[[tuple[Any, ...]], Any]

    def fill(self, values: tuple[Any, ...]) -> str:
        """`values` as `values_of` has them."""
        filled: str = self.text % self.pick(values)
        return filled


def values_of(
    trace_id: int, rank: int, seq: int, number: int, issued_ns: int, started_ns: int, ended_ns: int
) -> tuple[Any, ...]:
    """What differs between ops of a template."""
    return (
        f"{trace_id:032x}",
        f"{span_id(trace_id, rank):016x}",
        f"{root_span_id(trace_id):016x}",
        seq,
        number,
        issued_ns,
        started_ns,
        ended_ns,
        (started_ns - issued_ns) / 1e9,
        (ended_ns - started_ns) / 1e9,
    )


def make_template(op: OpFacts, spans: OpSpans, choice: Choice, to_json: ToJson) -> Template | None:
    """Of an op that has started and ended well; None where it has to be made anew each time."""
    started_ns, ended_ns = op.started_ns, op.ended_ns
    if started_ns is None or ended_ns is None or not op.issued_ns <= started_ns <= ended_ns:
        return None
    probe = replace(
        op,
        seq=_SEQ,
        number=_NUMBER,
        issued_ns=_ISSUED_NS,
        started_ns=_ISSUED_NS + _WAIT_NS,
        ended_ns=_ISSUED_NS + _WAIT_NS + _TRANSFER_NS,
    )
    rank = spans.rank.rank
    marks = list(map(str, _values(probe, spans.trace_id(probe), rank)))
    pieces = re.split(
        "(" + "|".join(map(re.escape, marks)) + ")", to_json(spans.make(probe, choice))
    )
    places = [marks.index(mark) for mark in pieces[1::2]]
    if len(places) < 2:
        return None
    text = "%s".join(piece.replace("%", "%%") for piece in pieces[::2])
    template = Template(text, itemgetter(*places))
    filled = template.fill(_values(op, spans.trace_id(op), rank))
    return template if filled == to_json(spans.make(op, choice)) else None


def _values(op: OpFacts, trace_id: int, rank: int) -> tuple[Any, ...]:
    assert op.started_ns is not None
    assert op.ended_ns is not None
    return values_of(trace_id, rank, op.seq, op.number, op.issued_ns, op.started_ns, op.ended_ns)
