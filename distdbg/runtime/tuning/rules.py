"""What DISTDBG_TUNE says beside on and off: single values instead of the measured ones.

    all_reduce=direct               all sizes
    all_gather@1MiB=half            the class of sizes that has 1 MiB
    stream_nbytes=2MiB, spins=400   the other fields of a Profile; a size may be `never`

Rules are separated by commas; a later one counts. Pure.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from distdbg.errors import ConfigError
from distdbg.ops.call import Kind
from distdbg.runtime.plan.overrides import parse_size
from distdbg.runtime.tuning.profile import (
    CLASSES,
    KINDS,
    NEVER,
    Profile,
    TransportKind,
    Ways,
    size_class,
)

_NUMBERS = tuple(each.name for each in fields(Profile) if each.name not in ("pairs", "crowds"))
_KINDS = {label: Kind[label.upper()] for label in KINDS}


def apply_rules(profile: Profile, text: str, variable: str = "DISTDBG_TUNE") -> Profile:
    """The profile with what the rules say; ConfigError for what is no rule."""
    for rule in text.split(","):
        if rule.strip():
            try:
                profile = _apply(profile, rule.strip())
            except ValueError as error:
                raise ConfigError(
                    f"the variable {variable} has {rule.strip()!r}: {error}",
                    hint=f"{variable} is on, off, or rules: "
                    f"KIND[@SIZE]={'|'.join(TransportKind)} with KIND one of "
                    f"{', '.join(_KINDS)}; or NAME=NUMBER with NAME one of {', '.join(_NUMBERS)}",
                ) from None
    return profile


def _number(name: str, value: str) -> int:
    if name.endswith("nbytes") or value.isdecimal():
        return parse_size(value)
    of = " of nanoseconds" if name.endswith("_ns") else ""
    raise ValueError(f"{value!r} is no number{of}")


def _apply(profile: Profile, rule: str) -> Profile:
    where, equals, value = (part.strip() for part in rule.partition("="))
    if not equals:
        raise ValueError("it is no rule")
    if where in _NUMBERS:
        number = NEVER if value == "never" and where.endswith("nbytes") else _number(where, value)
        change: dict[str, Any] = {where: number}
        return replace(profile, **change)
    label, at, size = (part.strip() for part in where.partition("@"))
    if label not in _KINDS:
        raise ValueError(f"there is no {label!r}")
    if value not in tuple(TransportKind):
        raise ValueError(f"there is no way {value!r}")
    classes = [size_class(parse_size(size))] if at else range(len(CLASSES))
    if -1 in classes:
        raise ValueError(f"what is shorter than {CLASSES[0] >> 10} KiB goes through the slots")

    def changed_ways(ways: Ways) -> Ways:
        for each in classes:
            ways = ways.with_way(_KINDS[label], each, TransportKind(value))
        return ways

    return replace(profile, pairs=changed_ways(profile.pairs), crowds=changed_ways(profile.crowds))
