"""Rows as bytes: what changed of many rows, column by column. Pure.

A batch holds the rows of some keys. A key is a rank, or a node of the tree. Both ends of a link remember,
for each key, the row that went over it last (the base), and a cell says how its value differs from
there. A column in which all rows differ alike is one run:

    ranks 0-4095 went from seq 1041 to 1042        keys [0, 4096]   seq column [0, 1, 4096]

    batch    [keys, texts, columns]
    keys     [gap, length, gap, length, ...]: runs of neighbours, in order
    column   []                                      nothing differs
             [0, value, length, value, length, ...]  runs
             [1, value, value, ...]                  one value for each row
    cells    NUMBER   the difference
             TEXT     0: the same; n: texts[n - 1]
             TIME     0: the same; 1: now; n: n - 2 tenths of a second before now
             NUMBERS  how many more there are, as one column; then the difference of each as a column

Times are points on a local clock at either end and ages on the way, so no two clocks need agree. A time
that has just been is sent as "now" while it is no news: those of a thousand moving ranks are one run.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from enum import Enum
from itertools import groupby
from operator import add, sub
from typing import Any, Final

Row = tuple[Any, ...]
Schema = tuple["RowColumn", ...]

#: As long as a time has just been.
SNAP_NS: Final = 500_000_000
UNIT_NS: Final = 100_000_000
MAX_ROWS: Final = 1 << 16
MAX_KEY: Final = 1 << 24
MAX_TEXT: Final = 400
MAX_NUMBERS: Final = 64
_MAX_NUMBER: Final = 1 << 62


class RowColumn(Enum):
    NUMBER = "number"
    TEXT = "text"
    TIME = "time"
    NUMBERS = "numbers"


#: What a cell is before its first value. Not values of the enum: Python 3.11.2 makes an object of an
#: empty tuple there.
BLANK: Final[Mapping[RowColumn, Any]] = {
    RowColumn.NUMBER: 0,
    RowColumn.TEXT: "",
    RowColumn.TIME: None,
    RowColumn.NUMBERS: (),
}


class BadBatch(ValueError):
    """What came is no batch, or does not fit its base."""


def encode(
    schema: Schema,
    rows: Mapping[int, Row],
    bases: Mapping[int, Row],
    now_ns: int,
    *,
    exact: Container[int] = (),
) -> tuple[list[Any], dict[int, Row], bool]:
    """A batch of these rows, the rows as the other end then has them, and whether a time was snapped.

    The rows are in the order of their keys; those of `exact` have no time snapped.
    """
    keys = list(rows)
    reported = list(zip(*rows.values(), strict=True))
    blank = tuple(BLANK[column] for column in schema)
    olds = list(zip(*(bases.get(key, blank) for key in keys), strict=True))
    texts: dict[str, int] = {}
    columns: list[list[int]] = []
    snapped = False
    for index, column in enumerate(schema):
        cells, old = reported[index], olds[index]
        if cells == old:
            columns.append([])
            if column is RowColumn.NUMBERS:
                columns += ([] for _ in range(max(map(len, cells))))
        elif column is RowColumn.NUMBER:
            columns.append(_pack([new - base for new, base in zip(cells, old, strict=True)]))
        elif column is RowColumn.TEXT:
            columns.append(
                _pack(
                    [
                        0 if new == base else texts.setdefault(new, len(texts) + 1)
                        for new, base in zip(cells, old, strict=True)
                    ]
                )
            )
        elif column is RowColumn.TIME:
            codes, times = _encode_times(keys, cells, old, now_ns, exact)
            snapped = snapped or 1 in codes
            columns.append(_pack(codes))
            reported[index] = tuple(times)
        else:
            columns += _encode_numbers(cells, old)
    batch = [_pack_keys(keys), list(texts), columns]
    return batch, dict(zip(keys, zip(*reported, strict=True), strict=True)), snapped


def decode(schema: Schema, batch: object, bases: Mapping[int, Row], now_ns: int) -> dict[int, Row]:
    """The rows of a batch. BadBatch for anything that `encode` does not make."""
    match batch:
        case [list() as packed_keys, list() as texts, list() as columns]:
            pass
        case _:
            raise BadBatch("not a batch")
    keys = _unpack_keys(packed_keys)
    if not all(isinstance(text, str) and len(text) <= MAX_TEXT for text in texts):
        raise BadBatch("a text is none, or too long")
    blank = tuple(BLANK[column] for column in schema)
    olds = list(zip(*(bases.get(key, blank) for key in keys), strict=True))
    count = len(keys)
    rest = iter(columns)
    cells: list[Iterable[Any]] = []
    for index, column in enumerate(schema):
        values = _unpack(next(rest, None), count)
        old = olds[index]
        if column is RowColumn.NUMBERS:
            cells.append(_decode_numbers(values or [0] * count, old, rest))
        elif values is None:
            if column is RowColumn.TIME and None in old:
                raise BadBatch("a time before the first one")
            cells.append(old)
        elif column is RowColumn.NUMBER:
            cells.append([base + value for base, value in zip(old, values, strict=True)])
        elif column is RowColumn.TEXT:
            if min(values) < 0 or max(values) > len(texts):
                raise BadBatch("a text is missing")
            choice = [None, *texts]
            cells.append([choice[v] if v else base for base, v in zip(old, values, strict=True)])
        else:
            cells.append(_decode_times(values, old, now_ns))
    if next(rest, None) is not None:
        raise BadBatch("too many columns")
    return dict(zip(keys, zip(*cells, strict=True), strict=True))


def is_reported(schema: Schema, row: Row, base: Row | None, now_ns: int) -> bool:
    """Whether the other end has this row, as well as it can be said."""
    if base is None:
        return False
    if row == base:
        return True
    for column, new, old in zip(schema, row, base, strict=True):
        if new != old and (
            column is not RowColumn.TIME
            or abs(new - old) > (SNAP_NS if now_ns - new < SNAP_NS else UNIT_NS)
        ):
            return False
    return True


# Cells ------------------------------------------------------------------------------------------


def _encode_times(
    keys: Sequence[int],
    cells: Sequence[int],
    old: Sequence[int | None],
    now_ns: int,
    exact: Container[int],
) -> tuple[list[int], list[int]]:
    codes, reported = [], []
    for key, new, base in zip(keys, cells, old, strict=True):
        if base is not None and abs(new - base) <= UNIT_NS:
            codes.append(0)
            reported.append(base)
            continue
        age_ns = max(0, now_ns - new)
        if age_ns < SNAP_NS and key not in exact:
            codes.append(1)
            reported.append(now_ns)
        else:
            units = (age_ns + UNIT_NS // 2) // UNIT_NS
            codes.append(units + 2)
            reported.append(now_ns - units * UNIT_NS)
    return codes, reported


def _decode_times(values: list[int], old: Sequence[int | None], now_ns: int) -> list[int]:
    if values.count(1) == len(values):
        return [now_ns] * len(values)
    if min(values) < 0 or any(v == 0 and base is None for v, base in zip(values, old, strict=True)):
        raise BadBatch("a time before the first one")
    return [
        base if v == 0 and base is not None else now_ns - max(0, v - 2) * UNIT_NS
        for v, base in zip(values, old, strict=True)
    ]


def _encode_numbers(
    cells: Sequence[tuple[int, ...]], old: Sequence[tuple[int, ...]]
) -> list[list[int]]:
    lengths = set(map(len, cells))
    if len(lengths) == 1 and lengths == set(map(len, old)):  # as long as no group comes or goes
        transposed = zip(zip(*cells, strict=True), zip(*old, strict=True), strict=True)
        return [[], *(_pack(list(map(sub, new, base))) for new, base in transposed)]
    columns = [_pack([len(new) - len(base) for new, base in zip(cells, old, strict=True)])]
    columns += (
        _pack(
            [
                (new[index] if index < len(new) else 0)
                - (base[index] if index < len(base) and index < len(new) else 0)
                for new, base in zip(cells, old, strict=True)
            ]
        )
        for index in range(max(map(len, cells)))
    )
    return columns


def _decode_numbers(
    more: list[int], old: Sequence[tuple[int, ...]], rest: Iterable[object]
) -> list[tuple[int, ...]]:
    counts = [len(base) + value for base, value in zip(old, more, strict=True)]
    most = max(counts)
    if min(counts) < 0 or most > MAX_NUMBERS:
        raise BadBatch("too many numbers")
    rest = iter(rest)
    columns = [_unpack(next(rest, None), len(counts)) for _ in range(most)]
    if not any(more) and not any(columns):
        return list(old)
    if not columns:
        return [()] * len(counts)
    columns = [column or [0] * len(counts) for column in columns]
    if not any(more) and min(counts) == most:
        return [
            tuple(map(add, base, differences))
            for base, differences in zip(old, zip(*columns, strict=True), strict=True)
        ]
    return [
        tuple(differences[i] + (base[i] if i < len(base) else 0) for i in range(length))
        for base, length, differences in zip(old, counts, zip(*columns, strict=True), strict=True)
    ]


# Runs -------------------------------------------------------------------------------------------


def _pack(values: list[int]) -> list[int]:
    if not any(values):
        return []
    if len(values) > 2 and values.count(values[0]) == len(values):
        return [0, values[0], len(values)]
    runs = [0]
    for value, group in groupby(values):
        runs += (value, len(list(group)))
        if len(runs) > len(values):
            return [1, *values]
    return runs


def _unpack(packed: object, count: int) -> list[int] | None:
    """None: all are 0."""
    if packed == [] and type(packed) is list:
        return None
    if not isinstance(packed, list) or not set(map(type, packed)) <= {int}:
        raise BadBatch("a column is missing, or holds what is no number")
    if min(packed) < -_MAX_NUMBER or max(packed) > _MAX_NUMBER:
        raise BadBatch("a number is too large")
    values: list[int] = []
    if packed[0] == 1:
        values = packed[1:]
    elif packed[0] == 0 and len(packed) % 2 == 1:
        for value, length in zip(packed[1::2], packed[2::2], strict=True):
            if not 0 < length <= count - len(values):
                break
            values += [value] * length
    if len(values) != count:
        raise BadBatch("a column has another length")
    return values


def _pack_keys(keys: Sequence[int]) -> list[int]:
    packed: list[int] = []
    following = 0
    for key in keys:
        if packed and key == following:
            packed[-1] += 1
        else:
            packed += (key - following, 1)
        following = key + 1
    return packed


def _unpack_keys(packed: list[object]) -> list[int]:
    if not packed or len(packed) % 2 or not set(map(type, packed)) <= {int}:
        raise BadBatch("no keys")
    keys: list[int] = []
    following = 0
    numbers: list[int] = packed  # type: ignore[assignment]  # checked above
    for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
        if gap < 0 or not 0 < length <= MAX_ROWS - len(keys) or following + gap > MAX_KEY:
            raise BadBatch("too many keys")
        keys += range(following + gap, following + gap + length)
        following += gap + length
    return keys
