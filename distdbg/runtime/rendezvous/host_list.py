"""Slurm's short form of host lists: 'n[01-03,7],login' is n01 n02 n03 n7 login. Pure."""

from __future__ import annotations

import re
from itertools import product

from distdbg.errors import ConfigError

_LIMIT = 100_000  # a typo in a range must not fill the memory


def expand_hosts(text: str) -> list[str]:
    """Return the hosts of a list in their order; ConfigError if it cannot be read."""
    hosts: list[str] = []
    for entry in _split(text):
        parts = re.split(r"(\[[^\]]*\])", entry)
        choices = [
            _expand(part, text) if part.startswith("[") else [part] for part in parts if part
        ]
        hosts.extend("".join(combination) for combination in product(*choices))
        if len(hosts) > _LIMIT:
            raise ConfigError(f"the host list {text[:60]!r} names more than {_LIMIT} hosts")
    return hosts


def _split(text: str) -> list[str]:
    # At the commas outside of brackets.
    entries, depth, start = [], 0, 0
    for position, character in enumerate(text):
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        elif character == "," and depth == 0:
            entries.append(text[start:position])
            start = position + 1
        if depth not in (0, 1):
            break
    if depth != 0:
        raise ConfigError(f"the host list {text!r} has brackets that do not match")
    entries.append(text[start:])
    return [entry.strip() for entry in entries if entry.strip()]


def _expand(bracket: str, text: str) -> list[str]:
    numbers: list[str] = []
    for item in bracket[1:-1].split(","):
        low, dash, high = item.strip().partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise ConfigError(f"the host list {text!r} has {item!r} where a number belongs")
        last = int(high) if dash else int(low)
        if last - int(low) > _LIMIT:
            raise ConfigError(f"the host list {text[:60]!r} names more than {_LIMIT} hosts")
        # Leading zeros count: n[01-03] is n01, not n1.
        numbers.extend(str(number).zfill(len(low)) for number in range(int(low), last + 1))
    return numbers
