"""Rules of breakpoints, parsed and matched: at which ops, and on which events, a rank stops. Pure.

    rank=3,kind=all_reduce,group=dp,seq>=42;on=nan

A rule is a list of conditions that all have to hold; `;` separates rules. The same text is in DISTDBG_BREAK,
on the command line, in the dashboard and, as JSON, in the control page. The fields of conditions are
in break_fields.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Final, Self

from distdbg.control.break_fields import ABOUT_ON as ABOUT_ON
from distdbg.control.break_fields import FIELDS as FIELDS
from distdbg.control.break_fields import OPERATORS, BreakFacts, Operator, StopCondition
from distdbg.control.layout import MAX_BREAK_NBYTES
from distdbg.errors import UsageError, format_ranks
from distdbg.record.rank_list import ranks_of_world, read_ranks

_CONDITION = re.compile(r"\s*(\w+)\s*(!=|<=|>=|=|<|>)\s*(.*?)\s*", re.DOTALL)
_NUMBER = re.compile(r"(\d+)\s*(?:([kmg])(?:i?b)?)?", re.IGNORECASE)
_FACTORS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_COMPARE: Final[Mapping[Operator, Callable[[int, int], bool]]] = {
    "=": int.__eq__,
    "!=": int.__ne__,
    "<": int.__lt__,
    "<=": int.__le__,
    ">": int.__gt__,
    ">=": int.__ge__,
}
#: More than any program has ops; what is larger is a slip of the pen.
_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Condition:
    """`field operator values`; of several values, one has to fit ('=') or none may ('!=')."""

    field: str
    operator: Operator
    values: tuple[str | int, ...]

    def fits(self, value: object) -> bool:
        """Whether it holds; what an op does not have fits nothing."""
        if value is None:
            return False
        match FIELDS[self.field].kind:
            case "number":
                compare = _COMPARE[self.operator]
                if self.operator == "!=":
                    return all(compare(_int(value), _int(each)) for each in self.values)
                return any(compare(_int(value), _int(each)) for each in self.values)
            case "ranks":
                is_one = value in self.values
            case "words":
                names = [value] if isinstance(value, str) else value
                is_one = any(
                    fnmatchcase(str(name), str(each))
                    for name in names  # type: ignore[attr-defined]  # a sequence of str, as Facts says
                    for each in self.values
                )
            case "site":
                is_one = any(_is_at(str(value), str(each)) for each in self.values)
        return is_one == (self.operator == "=")

    def __str__(self) -> str:
        if FIELDS[self.field].kind == "ranks":
            text = format_ranks((_int(each) for each in self.values), len(self.values))
            return f"{self.field}{self.operator}{text.replace(',', '|')}"
        return f"{self.field}{self.operator}{'|'.join(map(str, self.values))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    id: int
    """What it is cleared by; 0 of one that nobody has numbered."""
    text: str
    """In its normal form, which reads as the same rule."""
    on: frozenset[StopCondition]
    conditions: tuple[Condition, ...] = ()
    skip: int = 0
    """So many times it does not stop where it would."""
    hits: int | None = None
    """How often it stops; None: every time."""

    @classmethod
    def parse(cls, text: str, id: int = 0) -> Self:
        """Read one rule; UsageError says what is wrong with it and what would fit."""
        on: frozenset[StopCondition] | None = None
        conditions: list[Condition] = []
        counts: dict[str, int] = {}
        for part in filter(None, map(str.strip, text.split(","))):
            found = _CONDITION.fullmatch(part)
            if found is None:
                raise _wrong(text, f"{part!r} is not a condition", "such as rank=3 or seq>=42")
            name, operator, values = found.groups()
            if name in ("on", "skip", "hits"):
                if operator != "=":
                    raise _wrong(text, f"{name} takes =, not {operator}")
                if (name == "on" and on is not None) or name in counts:
                    raise _wrong(text, f"{name} is given twice")
                if name == "on":
                    on = _read_on(text, values)
                else:
                    counts[name] = _read_number(text, name, values)
                continue
            conditions.append(_read_condition(text, name, operator, values))
        if not conditions and on is None:
            raise _wrong(text, "there is no condition", "on=op stops at every op")
        _check_together(text, conditions, on)
        on = on or frozenset((StopCondition.OP,))
        return cls(
            id=id,
            text=_normal(conditions, on, counts),
            on=on,
            conditions=tuple(conditions),
            skip=counts.get("skip", 0),
            hits=counts.get("hits"),
        )

    def concerns(self, rank: int) -> bool:
        """Whether it can stop this rank at all."""
        return all(each.fits(rank) for each in self.conditions if each.field == "rank")

    def check_ranks(self, world_size: int) -> None:
        """UsageError where it can stop no rank of a job of this size; 0: not known."""
        if world_size and not any(map(self.concerns, range(world_size))):
            raise UsageError(
                f"no rank fits the rule {self.text}: the job has {ranks_of_world(world_size)}"
            )

    def fits(self, facts: BreakFacts) -> bool:
        """Whether all conditions hold; `on`, `skip` and `hits` are the caller's to count."""
        return all(each.fits(getattr(facts, each.field)) for each in self.conditions)

    def numbered(self, id: int) -> Self:
        """The same rule under a number."""
        return replace(self, id=id)

    def __str__(self) -> str:
        return self.text


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Read rules parted by ';', numbered from 1 on."""
    parts = [part for part in text.split(";") if part.strip()]
    return tuple(Rule.parse(part, id) for id, part in enumerate(parts, 1))


def rules_to_page(rules: Iterable[Rule]) -> dict[str, Any]:
    """What the page carries, as JSON; UsageError when that is more than it has room for."""
    page = {"rules": [{"id": rule.id, "rule": rule.text} for rule in rules]}
    if len(json.dumps(page).encode()) > MAX_BREAK_NBYTES:
        raise UsageError(
            f"{len(page['rules'])} breakpoints take more than {MAX_BREAK_NBYTES} bytes together",
            hint="clear some of them first",
        )
    return page


def breakpoints_to_plain(
    rules: Iterable[Rule], stopped: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """As `distdbg break --json` has it: the rules that are armed, and the rows of ranks at a prompt."""
    names = {"rank": "rank", "host": "host", "why": "why", "site": "site", "since_s": "state_age_s"}
    rows = [{name: row[key] for name, key in names.items()} for row in stopped]
    return {"rules": rules_to_page(rules)["rules"], "stopped": rows}


def rules_from_page(text: bytes) -> tuple[Rule, ...]:
    """The rules of a page; none of one that is damaged, and not those that another version wrote."""
    try:
        page = json.loads(text)
    except ValueError:
        return ()
    entries = page.get("rules") if isinstance(page, dict) else None
    rules = []
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict):
            continue
        id, rule = entry.get("id"), entry.get("rule")
        if not isinstance(id, int) or not isinstance(rule, str):
            continue
        try:
            rules.append(Rule.parse(rule, id))
        except UsageError:
            continue
    return tuple(rules)


def _read_on(rule: str, text: str) -> frozenset[StopCondition]:
    words = [word.strip() for word in text.split("|")]
    for word in words:
        if word not in set(StopCondition):
            raise _wrong(
                rule,
                f"on={word} is not an event to stop at",
                f"it is one of {', '.join(StopCondition)}",
            )
    return frozenset(map(StopCondition, words))


def _read_condition(rule: str, name: str, operator: str, text: str) -> Condition:
    field = FIELDS.get(name)
    if field is None:
        names = ", ".join((*FIELDS, "on", "skip", "hits"))
        raise _wrong(rule, f"{name!r} is not a field", f"it is one of {names}")
    fitting = [each for each in OPERATORS[field.kind] if each == operator]
    if not fitting:
        raise _wrong(rule, f"{name} takes = or !=, not {operator}", f"as in {field.example}")
    words = [word.strip() for word in text.split("|")]
    if not all(words):
        raise _wrong(rule, f"{name}{operator} has no value", f"as in {field.example}")
    values: list[str | int] = []
    for word in words:
        match field.kind:
            case "number":
                values.append(_read_number(rule, name, word))
            case "ranks":
                values.extend(_read_ranks(rule, name, word))
            case "words":
                if field.choices and word not in field.choices:
                    raise _wrong(
                        rule,
                        f"there is no {name} {word!r}",
                        f"it is one of {', '.join(field.choices)}",
                    )
                values.append(word.removeprefix("torch.") if name == "dtype" else word)
            case "site":
                values.append(word)
    if len(values) > 1 and operator not in ("=", "!="):
        raise _wrong(rule, f"{name}{operator} takes one value", f"as in {field.example}")
    return Condition(name, fitting[0], tuple(dict.fromkeys(values)))


def _read_number(rule: str, name: str, text: str) -> int:
    found = _NUMBER.fullmatch(text)
    factor = (found[2] or "").lower() if found is not None else ""
    if found is None or (factor and name != "nbytes") or len(found[1]) > len(str(_MAX)):
        raise _wrong(rule, f"{name}: {text[:40]!r} is not a number")
    number = int(found[1]) * _FACTORS[factor]
    if number > _MAX or (number == 0 and name == "hits"):
        raise _wrong(rule, f"{name} cannot be {text}")
    return number


def _read_ranks(rule: str, name: str, text: str) -> list[int]:
    try:
        return read_ranks(text)
    except ValueError:
        raise _wrong(
            rule, f"{name}: {text[:40]!r} is not a rank", f"as in {FIELDS[name].example}"
        ) from None


def _check_together(
    rule: str,
    conditions: Sequence[Condition],
    on: frozenset[StopCondition] | None,
) -> None:
    asked: set[str] = set()
    for each in conditions:
        if each.operator == "=":
            if each.field in asked:
                raise _wrong(
                    rule,
                    f"{each.field}= is given twice",
                    f"'|' is or: {FIELDS[each.field].example}",
                )
            asked.add(each.field)
    if on is not None and set(on) == {StopCondition.SIGNAL}:
        others = [each.field for each in conditions if each.field != "rank"]
        if others:
            raise _wrong(rule, f"a signal comes outside of ops, so {others[0]} fits none of them")


def _normal(
    conditions: Iterable[Condition], on: frozenset[StopCondition], counts: Mapping[str, int]
) -> str:
    parts = [str(each) for each in conditions]
    if set(on) != {StopCondition.OP} or not parts:
        parts.append("on=" + "|".join(each for each in StopCondition if each in on))
    parts += [f"{name}={counts[name]}" for name in ("skip", "hits") if name in counts]
    return ",".join(parts)


def _is_at(site: str, wanted: str) -> bool:
    """Whether '/home/me/train.py:88 (step)' is 'train.py:88', 'me/train.py' ..."""
    place = site.rpartition(" (")[0] or site
    file, _, line = place.rpartition(":")
    wanted_file, colon, wanted_line = wanted.rpartition(":")
    if colon and wanted_line.isdigit():
        if wanted_line != line:
            return False
    else:
        wanted_file = wanted
    return file == wanted_file or file.endswith("/" + wanted_file.removeprefix("./"))


def _int(value: object) -> int:
    assert isinstance(value, int)  # by the kind of the field
    return value


def _wrong(rule: str, what: str, hint: str | None = None) -> UsageError:
    shown = " ".join(rule.split())
    shown = shown if len(shown) <= 60 else shown[:59] + "..."
    return UsageError(f"breakpoint '{shown}': {what}", hint=hint)
