"""The collectives of a group compared over all ranks by slices of columns. Pure.

    for each group: first = first_difference(session, ops)     the first seq whose calls differ; None

Ranks that agree have equal bytes in their columns of fingerprints, so a healthy rank costs one comparison
of memory. Where a fingerprint is 0 the kinds and forms are compared; where those differ `legality`
decides, once for each pair of forms.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from distdbg.diagnose.legality import differing, facts_of
from distdbg.diagnose.matching import GroupOps, RankOps
from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session


@dataclass(slots=True)
class _Columns:
    """What one rank called, by seq from `first` on."""

    first: int
    fingerprint: array[int]
    kind: array[int]
    form: array[int]
    is_printed: bool
    """Whether all fingerprints are known."""

    @property
    def end(self) -> int:
        return self.first + len(self.kind)


@dataclass(slots=True)
class Comparer:
    """Compares calls, and remembers which forms go together."""

    session: Session
    _known: dict[tuple[int, int, str, str], tuple[str, ...]] = field(default_factory=dict)

    def differing(self, one: OpRef, other: OpRef) -> tuple[str, ...]:
        """Return in which aspects two calls of one op differ illegally; () when they do not."""
        mine, theirs = self.session.ranks[one.rank].ops, self.session.ranks[other.rank].ops
        prints = mine.fingerprint[one.at], theirs.fingerprint[other.at]
        if all(prints) and prints[0] == prints[1]:
            return ()
        forms = mine.form[one.at], theirs.form[other.at]
        key = (*forms, self.session.kind_of(one), self.session.kind_of(other))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._compare_forms(key)
        if found or not all(prints):
            return found
        # Fingerprints say more than what is illegal for certain: the shape, the contents of a block.
        one_form, other_form = (self.session.forms[at] for at in forms)
        if one_form.sums != other_form.sums:
            return ("sums",)
        return ("call",) if one_form.inputs == other_form.inputs else ("shape",)

    def _compare_forms(self, key: tuple[int, int, str, str]) -> tuple[str, ...]:
        forms = self.session.forms
        return tuple(differing(facts_of(key[2], forms[key[0]]), facts_of(key[3], forms[key[1]])))

    def first_difference(self, ops: GroupOps) -> int | None:
        """The first seq of a group in which two ranks differ."""
        references: list[tuple[int, _Columns]] = []
        first: int | None = None
        for rank, rank_ops in sorted(ops.by_rank.items()):
            columns = _columns(self.session, rank, rank_ops)
            is_compared = False
            for other, theirs in references:
                low, high = max(columns.first, theirs.first), min(columns.end, theirs.end)
                if first is not None:
                    high = min(high, first)
                if low < high:
                    found = self._compare(ops, (rank, columns), (other, theirs), low, high)
                    first = found if found is not None else first
                is_compared = is_compared or low < high
            if not is_compared or _is_wider(columns, references):
                references.append((rank, columns))
        return first

    def differences(self, ops: GroupOps, one: int, other: int, first: int) -> int:
        """How many ops differ between two ranks from a seq on."""
        return sum(
            bool(self.differing(OpRef(one, mine), OpRef(other, theirs)))
            for seq in range(first, min(ops.by_rank[one].last_seq, ops.by_rank[other].last_seq) + 1)
            if (mine := ops.index(one, seq)) is not None
            and (theirs := ops.index(other, seq)) is not None
        )

    def _compare(
        self,
        ops: GroupOps,
        one: tuple[int, _Columns],
        other: tuple[int, _Columns],
        low: int,
        high: int,
    ) -> int | None:
        (rank, mine), (reference, theirs) = one, other
        for seq in _suspects(mine, theirs, low, high):
            my_at, their_at = ops.index(rank, seq), ops.index(reference, seq)
            if my_at is None or their_at is None:
                continue
            if self.differing(OpRef(rank, my_at), OpRef(reference, their_at)):
                return seq
        return None


def _is_wider(columns: _Columns, references: list[tuple[int, _Columns]]) -> bool:
    """Whether it knows ops that no rank before did: those after it are compared with it too."""
    return columns.first < min(r.first for _, r in references) or columns.end > max(
        r.end for _, r in references
    )


def _suspects(mine: _Columns, theirs: _Columns, low: int, high: int) -> Iterator[int]:
    """The seqs that may differ, in order."""
    a, b = (
        slice(low - mine.first, high - mine.first),
        slice(low - theirs.first, high - theirs.first),
    )
    prints = mine.fingerprint[a], theirs.fingerprint[b]
    is_printed = mine.is_printed and theirs.is_printed
    if prints[0] == prints[1] and is_printed:
        return
    kinds, forms = (mine.kind[a], theirs.kind[b]), (mine.form[a], theirs.form[b])
    if prints[0] == prints[1] and kinds[0] == kinds[1] and forms[0] == forms[1]:
        return
    rows = zip(*prints, *kinds, *forms, strict=True)
    for step, (print_a, print_b, kind_a, kind_b, form_a, form_b) in enumerate(rows):
        if print_a and print_b:
            if print_a != print_b:
                yield low + step
        elif kind_a != kind_b or form_a != form_b:
            yield low + step


def _columns(session: Session, rank: int, rank_ops: RankOps) -> _Columns:
    ops, indexes = session.ranks[rank].ops, rank_ops.indexes
    first, count = indexes[0], len(indexes)
    if first >= 0 and indexes == array("i", range(first, first + count)):
        run = slice(first, first + count)
        prints, kinds, forms = ops.fingerprint[run], ops.kind[run], ops.form[run]
    else:
        prints = array("Q", [ops.fingerprint[i] if i >= 0 else 0 for i in indexes])
        kinds = array("B", [ops.kind[i] if i >= 0 else 255 for i in indexes])
        forms = array("i", [ops.form[i] if i >= 0 else 0 for i in indexes])
    return _Columns(rank_ops.first_seq, prints, kinds, forms, 0 not in prints)
