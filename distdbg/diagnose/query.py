"""Parses the expressions of `distdbg query`, which select ops. Pure.

    rank=0-3,7 and kind=all_reduce and duration>10ms
    group in (dp, tp) and not status=ok
    site~"data.*\\.py" or (async and nbytes>=1MiB)

    expression   and-terms joined by `or`
    and-term     not-terms joined by `and`
    not-term     [not] ( expression ) | [not] comparison | [not] FIELD, for one that is yes or no
    comparison   FIELD = VALUE, also != < <= > >= ~ (regular expression, anywhere in the text)
                 FIELD in (VALUE, VALUE, ...)

Quote values with blanks or brackets. A rank may be a list. An op without the field (the tag of a barrier,
the duration of an op in flight) matches `!=` and nothing else.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Iterator
from typing import Final, NoReturn

from distdbg.diagnose.op_fields import FIELDS, FieldUnit, OpField, SessionView, Value
from distdbg.diagnose.ops import OpRef
from distdbg.errors import UsageError
from distdbg.record.rank_list import read_ranks

Test = Callable[[SessionView, OpRef], bool]

_BLANK: Final = re.compile(r"\s*")
_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_OPERATOR: Final = re.compile(r"==|!=|<=|>=|=|<|>|~")
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|' + r"'((?:[^'\\]|\\.)*)'")
_BARE: Final = re.compile(r"[^\s()'\"=<>!~]+")
_BARE_IN_LIST: Final = re.compile(r"[^\s()'\"=<>!~,]+")
_NUMBER: Final = re.compile(r"([+-]?\d{1,18}(?:\.\d{1,18})?)\s*([A-Za-z]*)")
_ORDERS: Final[dict[str, Callable[[int, int], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TIMES: Final = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9}
_SIZES: Final = {
    "": 1, "b": 1,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
}  # fmt: skip
_YES: Final = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
#: Deeper brackets than anybody writes; what goes deeper would end Python's stack.
_MAX_DEPTH: Final = 100


def parse(text: str) -> Test:
    """The test that an expression is; UsageError says at which column it cannot be read."""
    return _Parser(text).whole()


def names_in(text: str) -> dict[str, list[str]]:
    """The kinds, statuses and groups that an expression names; UsageError as `parse`."""
    parser = _Parser(text)
    parser.whole()
    return parser.names


def select(view: SessionView, test: Test) -> Iterator[OpRef]:
    """The ops that fit, by rank and in the order of their issue."""
    for rank, log in view.session.ranks.items():
        for at in range(len(log.ops)):
            op = OpRef(rank, at)
            if test(view, op):
                yield op


class _Parser:
    """Descends through one expression."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self.names: dict[str, list[str]] = {"kind": [], "status": [], "group": []}
        self._skip()

    def whole(self) -> Test:
        if self._at == len(self._text):
            return lambda view, op: True
        test = self._any()
        if self._at < len(self._text):
            self._fail("expected 'and', 'or' or the end")
        return test

    def _any(self) -> Test:
        tests = [self._all()]
        while self._take_word("or"):
            tests.append(self._all())
        return tests[0] if len(tests) == 1 else lambda view, op: any(t(view, op) for t in tests)

    def _all(self) -> Test:
        tests = [self._one()]
        while self._take_word("and"):
            tests.append(self._one())
        return tests[0] if len(tests) == 1 else lambda view, op: all(t(view, op) for t in tests)

    def _one(self) -> Test:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._fail("nested too deeply")
        try:
            if self._take_word("not"):
                test = self._one()
                return lambda view, op: not test(view, op)
            if self._take("("):
                test = self._any()
                if not self._take(")"):
                    self._fail("expected ')'")
                return test
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> Test:
        field = self._field()
        if self._take_word("in"):
            return self._in_list(field)
        found = _OPERATOR.match(self._text, self._at)
        if found is None:
            if field.unit is FieldUnit.FLAG:
                return lambda view, op: field.read(view, op) is True
            self._fail(f"expected = != < <= > >= ~ or 'in' after {field.name}")
        start = self._at
        self._move(found.end())
        sign = "=" if found[0] == "==" else found[0]
        at, word = self._value(_BARE)
        if sign == "~":
            return self._pattern(field, word, at)
        if sign in _ORDERS:
            return self._order(field, sign, word, at, start)
        fits = self._equals(field, word, at)
        if sign == "!=":
            return lambda view, op: not fits(field.read(view, op))
        return lambda view, op: fits(field.read(view, op))

    def _field(self) -> OpField:
        found = _WORD.match(self._text, self._at)
        if found is None:
            self._fail("expected a field")
        field = FIELDS.get(found[0])
        if field is None:
            near = difflib.get_close_matches(found[0], FIELDS, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(FIELDS)}"
            self._fail(f"unknown field {found[0]!r}", hint=hint)
        self._move(found.end())
        return field

    def _in_list(self, field: OpField) -> Test:
        if not self._take("("):
            self._fail("expected '(' after 'in'")
        tests = []
        while True:
            at, word = self._value(_BARE_IN_LIST)
            tests.append(self._equals(field, word, at))
            if self._take(")"):
                break
            if not self._take(","):
                self._fail("expected ',' or ')'")

        def test(view: SessionView, op: OpRef) -> bool:
            value = field.read(view, op)
            return any(fits(value) for fits in tests)

        return test

    def _pattern(self, field: OpField, word: str, at: int) -> Test:
        if field.unit is not FieldUnit.TEXT:
            self._fail(f"{field.name} is a {field.unit.value}; ~ is for texts", at)
        try:
            pattern = re.compile(word)
        except (re.error, RecursionError, OverflowError) as error:
            self._fail(f"not a regular expression: {error}", at)

        def test(view: SessionView, op: OpRef) -> bool:
            value = field.read(view, op)
            return value is not None and pattern.search(str(value)) is not None

        return test

    def _order(self, field: OpField, sign: str, word: str, at: int, start: int) -> Test:
        if field.unit in (FieldUnit.TEXT, FieldUnit.FLAG):
            self._fail(f"{field.name} is a {field.unit.value}; it has no order", start)
        limit = self._number(field, word, at)
        compare = _ORDERS[sign]

        def test(view: SessionView, op: OpRef) -> bool:
            value = field.read(view, op)
            return isinstance(value, int) and compare(value, limit)

        return test

    def _equals(self, field: OpField, word: str, at: int) -> Callable[[Value], bool]:
        if field.unit is FieldUnit.FLAG:
            if word.lower() not in _YES:
                self._fail(f"{field.name} is yes or no, not {word!r}", at)
            wanted = _YES[word.lower()]
            return lambda value: value is wanted
        if field.unit is FieldUnit.RANK:
            try:
                ranks = frozenset(read_ranks(word))
            except ValueError:
                self._fail(f"{word!r} is no list of ranks such as 0-3,7", at)
            return lambda value: value in ranks
        if field.unit is not FieldUnit.TEXT:
            number = self._number(field, word, at)
            return lambda value: value == number
        if field.name in self.names:
            self.names[field.name].append(word)
        if field.name == "site":
            # 'train.py:88 (step)', without the folders, and without the function.
            return lambda value: isinstance(value, str) and _is_site(value, word)
        return lambda value: value == word

    def _number(self, field: OpField, word: str, at: int) -> int:
        found = _NUMBER.fullmatch(word)
        if found is None:
            self._fail(f"{field.name} is a {field.unit.value}, not {word!r}", at)
        number, unit = found[1], found[2]
        if field.unit is FieldUnit.NS:
            if unit not in _TIMES:
                self._fail(f"a time has a unit: {', '.join(_TIMES)}", at)
            factor = _TIMES[unit]
        elif field.unit is FieldUnit.NBYTES:
            if unit.lower() not in _SIZES:
                self._fail("the units of a size are B, KiB, MiB, GiB, TiB, kB, MB, GB, TB", at)
            factor = _SIZES[unit.lower()]
        elif unit:
            self._fail(f"{field.name} is a {field.unit.value} without a unit", at)
        else:
            factor = 1
        return round(float(number) * factor) if "." in number else int(number) * factor

    # ---------------------------------------------------------------------------- one step further

    def _value(self, bare: re.Pattern[str]) -> tuple[int, str]:
        at = self._at
        quoted = _QUOTED.match(self._text, at)
        if quoted is not None:
            self._move(quoted.end())
            text = quoted[1] if quoted[1] is not None else quoted[2]
            return at, re.sub(r"\\(['\"])", r"\1", text)
        found = bare.match(self._text, at)
        if found is None:
            self._fail("expected a value")
        self._move(found.end())
        return at, found[0]

    def _take_word(self, word: str) -> bool:
        found = _WORD.match(self._text, self._at)
        if found is None or found[0].lower() != word:
            return False
        self._move(found.end())
        return True

    def _take(self, sign: str) -> bool:
        if not self._text.startswith(sign, self._at):
            return False
        self._move(self._at + len(sign))
        return True

    def _move(self, at: int) -> None:
        self._at = at
        self._skip()

    def _skip(self) -> None:
        found = _BLANK.match(self._text, self._at)
        assert found is not None
        self._at = found.end()

    def _fail(self, why: str, at: int | None = None, hint: str | None = None) -> NoReturn:
        at = self._at if at is None else at
        first = max(0, at - 60)
        shown = self._text[first : at + 40].replace("\n", " ")
        raise UsageError(
            f"query, column {at + 1}: {why}",
            details=[shown, " " * (at - first) + "^"],
            hint=hint,
        )


def _is_site(value: str, word: str) -> bool:
    place, _, function = value.partition(" (")
    short = place.rpartition("/")[2]
    return word in (place, short) or word in (value, f"{short} ({function}")
