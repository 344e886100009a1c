"""Spans of ops as JSON, fast: the text of one op with places for what differs in the next.

Two ops of a rank that were called on one line with one form differ in their ids, numbers and times, the name
of the block and the ids of the program's span around them, and in nothing else of what a span says. So the
spans of such an op are made once with values that occur nowhere else, and their JSON is cut where those are.
What this must never do is to know what is in a span: `fill` of a template gives the same letters as `to_json`
of the spans, and a template of which that is not so for the op that it was made for is none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from distdbg.export.otel.ids import hex_ids
from distdbg.export.otel.model import SpanData
from distdbg.export.otel.ops import OpSpans, SpanChoice
from distdbg.export.otel.recorded_ops import Context, OpFacts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Numbers that nobody else has: 19 digits, as times have.
_SEQ: Final = 8_765_439_012_345_678_901
_NUMBER: Final = 7_654_390_123_456_789_012
_ISSUED_NS: Final = 1_234_567_890_987_654_321
_WAIT_NS: Final = 234_567_890_123_457
_TRANSFER_NS: Final = 345_678_901_234_567
_REGION: Final = "A block that nobody has called so"
_CONTEXT: Final = Context(trace_id=0xC0FFEE << 100 | 0x5EED, span_id=0xC0FFEE << 40 | 0x5EED)

ToJson = Callable[[Iterable[SpanData]], str]


@dataclass(frozen=True, slots=True)
class Template:
    """The spans of ops that differ in numbers alone."""

    pieces: tuple[str, ...]
    """Each second one is the place of a number."""
    pick: Callable[[tuple[str, ...]], tuple[str, ...]]

    def fill(self, values: tuple[str, ...]) -> str:
        """`values` as `values_of` has them; of an op within a block or a span of the program's behind them
        the name of the block, by `escape`, and `context_values`.
        """
        parts = list(self.pieces)
        parts[1::2] = self.pick(values)
        return "".join(parts)


def values_of(
    digests: Sequence[bytes],
    rank: int,
    seqs: Iterable[int],
    numbers: Iterable[int],
    issued_ns: NDArray[np.int64],
    started_ns: NDArray[np.int64],
    ended_ns: NDArray[np.int64],
) -> Iterator[tuple[str, ...]]:
    """What differs between ops of a template, as text; `digests` are those of their traces."""
    return zip(
        *hex_ids(digests, rank),
        map(str, seqs),
        map(str, numbers),
        map(str, issued_ns.tolist()),
        map(str, started_ns.tolist()),
        map(str, ended_ns.tolist()),
        map(repr, ((started_ns - issued_ns) / 1e9).tolist()),
        map(repr, ((ended_ns - started_ns) / 1e9).tolist()),
        strict=True,
    )


def context_values(context: Context | None) -> tuple[str, str]:
    if context is None:
        return "", ""
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


def escape(text: str) -> str:
    """As it stands between quotes; what is no letter is escaped twice, as nobody else could read it."""
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode()
    return json.dumps(text)[1:-1]


def make_template(
    op: OpFacts, spans: OpSpans, choice: SpanChoice, to_json: ToJson
) -> Template | None:
    """A template by an op that has started and ended well; None where it has to be made anew each time."""
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
        region=_REGION if op.region else "",
        context=_CONTEXT if op.context else None,
    )
    marks = (*_values(probe, spans), _REGION, *context_values(_CONTEXT))
    text = to_json(spans.make(probe, choice))
    for place, mark in enumerate(marks):
        text = text.replace(mark, f"\0{place}\0")  # a letter that JSON has not
    pieces = text.split("\0")
    places = list(map(int, pieces[1::2]))
    if len(places) < 2:
        return None
    template = Template(tuple(pieces), itemgetter(*places))
    filled = template.fill((*_values(op, spans), escape(op.region), *context_values(op.context)))
    return template if filled == to_json(spans.make(op, choice)) else None


def _values(op: OpFacts, spans: OpSpans) -> tuple[str, ...]:
    import numpy as np

    assert op.started_ns is not None
    assert op.ended_ns is not None
    times = (np.array([ns], np.int64) for ns in (op.issued_ns, op.started_ns, op.ended_ns))
    trace = spans.trace_id(op).to_bytes(16, "big")
    return next(values_of([trace], spans.rank.rank, [op.seq], [op.number], *times))
