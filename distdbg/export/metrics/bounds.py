"""What keeps labels few, whatever a program does: names of groups, data types, kinds. Pure.

A group's label is what its program calls it, so all 128 instances of the group "dp" are one label. A group
without a description is named by its size, "(8 ranks)": its own name is a number that the next group has one
higher, and a program that makes a group each step would make a label each step. The default group is "world".
What a program cannot have called a group stands in parentheses.

Names beyond the first `MAX_GROUPS` that an agent meets are counted together, and so are data types beyond
`MAX_DTYPES` of one kind and group. Who came first stays, so no series changes its meaning.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from math import prod
from typing import Final

from distdbg.export.metrics.buckets import CLASSIC_SERIES
from distdbg.export.metrics.families import (
    FAMILIES,
    MAX_CAUSES,
    MAX_DTYPES,
    MAX_GROUPS,
    MAX_WORDS,
    NO_DTYPE,
    OTHER_DTYPE,
    MetricFamily,
    MetricType,
    Scope,
)
from distdbg.record.entries import KIND_LABELS
from distdbg.record.format import Aside
from distdbg.record.printable import printable
from distdbg.record.rank_state import RankState

#: Kinds of ops that a record can name.
KINDS: Final = frozenset((*KIND_LABELS, *(aside.label for aside in Aside)))
OTHER_KIND: Final = "(other)"
OTHER_WORD: Final = "(other)"
#: Longer values of labels are cut.
MAX_LABEL_CHARACTERS: Final = 128

#: Names that the runtime makes up: a number, or a digest of the ranks and a number.
_MADE_UP: Final = re.compile(r"\d+|local-[0-9a-f]+-\d+|merged-\d+")
_DEFAULT_DESC: Final = "default_pg"


def group_label(desc: str, name: str, size: int) -> str:
    """The label of a group, from the `desc`, `name` and `size` of the record's `Group`."""
    words = desc or name
    if words == _DEFAULT_DESC:
        return "world"
    # A part of the default group, which nobody has described.
    words = words.replace(f"{_DEFAULT_DESC}:", "world:", 1)
    if not words or (words == name and _MADE_UP.fullmatch(words)) or words == "undefined":
        return f"({size} rank{'s' * (size != 1)})"
    return words


class FirstFew:
    """The first `most` values that were met, `known` before all; any other becomes `other`."""

    def __init__(self, most: int, other: str = OTHER_WORD, *, known: Iterable[str] = ()) -> None:
        self._most, self._other = most, other
        self._known = set(known)

    def of(self, value: str) -> str:
        if value in self._known:
            return value
        if len(self._known) >= self._most:
            return self._other
        self._known.add(value)
        return value


def most_series(ranks: int, *, is_first: bool) -> int:
    """No agent serves more of a run, whatever its ranks do; `is_first`: that speaks for the job."""
    kinds, groups = len(KINDS) + 1, MAX_GROUPS + 1
    labels = {
        "kind": kinds,
        "group": groups,
        "dtype": MAX_DTYPES + len((OTHER_DTYPE, NO_DTYPE)),
        "rank": ranks,
        "cause": 2,
        "state": len(RankState),
    }
    return sum(
        _most_labels(family, labels)
        * (CLASSIC_SERIES if family.type is MetricType.HISTOGRAM else 1)
        for family in FAMILIES
        if is_first or family.scope is not Scope.JOB
    )


def _most_labels(family: MetricFamily, labels: Mapping[str, int]) -> int:
    if family.name == "distdbg_rank_blamed":
        return MAX_CAUSES
    return prod(labels.get(label, MAX_WORDS + 1) for label in _bounded(family))


def _bounded(family: MetricFamily) -> tuple[str, ...]:
    """The labels that may have several values; an agent has one version."""
    return () if family.type is MetricType.INFO else family.labels


def known_kind(kind: str) -> str:
    """A kind that a record can name, or the word for all others."""
    return kind if kind in KINDS else OTHER_KIND


def clean(words: str) -> str:
    """Make words fit for a label: nothing that a terminal or a browser obeys, UTF-8, and not too long.

    Two long names stay two.
    """
    words = printable(words)
    if len(words) <= MAX_LABEL_CHARACTERS:
        return words
    digest = hashlib.blake2b(words.encode(), digest_size=4).hexdigest()
    return f"{words[: MAX_LABEL_CHARACTERS - 9]}~{digest}"
