"""What DISTDBG_ALGO says: which algorithm carries out which kind between hosts, from which size on.

    all_reduce=ring                         always
    all_reduce@64KiB=doubling               while a block has at most 64 KiB
    all_reduce@64KiB=doubling,all_reduce=ring,broadcast=double_tree

Of several rules of a kind the one with the smallest size that is not exceeded decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from distdbg.errors import ConfigError
from distdbg.ops.call import Kind
from distdbg.runtime.plan.names import NAMES

_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_SIZE = re.compile(r"(\d+)\s*([a-z]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One rule."""

    kind: Kind
    algorithm: str
    #: The largest size for which it holds; None: any.
    most_nbytes: int | None = None


def parse_size(text: str) -> int:
    """'64KiB', '1 MiB' or '8' as bytes; ValueError for anything else."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError(f"{text!r} is no size such as 8, 64KiB or 1MiB")
    return int(match[1]) * _UNITS[match[2].lower()]


def parse_overrides(text: str | None, variable: str = "DISTDBG_ALGO") -> tuple[Override, ...]:
    """The rules of a value of the variable, those with the smallest size first."""
    rules = [
        _parse_rule(rule.strip(), variable) for rule in (text or "").split(",") if rule.strip()
    ]
    return tuple(sorted(rules, key=lambda r: (r.most_nbytes is None, r.most_nbytes or 0)))


def choose_override(overrides: tuple[Override, ...], kind: Kind, nbytes: int) -> str | None:
    """The algorithm that the rules want for such a call."""
    for rule in overrides:
        if rule.kind is kind and (rule.most_nbytes is None or nbytes <= rule.most_nbytes):
            return rule.algorithm
    return None


def _parse_rule(rule: str, variable: str) -> Override:
    where, equals, algorithm = (part.strip() for part in rule.partition("="))
    label, at, size = (part.strip() for part in where.partition("@"))
    kinds = {kind.label: kind for kind in NAMES}
    if not equals:
        raise ConfigError(f"the variable {variable} has {rule!r}; expected KIND[@SIZE]=ALGORITHM")
    if label not in kinds:
        known = ", ".join(kinds)
        raise ConfigError(f"the variable {variable} names the kind {label!r}; known are {known}")
    kind = kinds[label]
    if algorithm not in NAMES[kind]:
        known = ", ".join(NAMES[kind])
        raise ConfigError(
            f"the variable {variable} names the algorithm {algorithm!r}; {label} has {known}"
        )
    if at and kind is Kind.ALL_TO_ALL:
        raise ConfigError(
            f"the variable {variable} has {rule!r}; no rank knows the sizes of an all_to_all on the others"
        )
    try:
        most_nbytes = parse_size(size) if at else None
    except ValueError as error:
        raise ConfigError(f"the variable {variable} has {rule!r}: {error}") from None
    return Override(kind=kind, algorithm=algorithm, most_nbytes=most_nbytes)
