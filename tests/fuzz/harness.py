"""What the fuzzers share: cases by number, each made by chance from its own seed, and hostile JSON.

    python -m tests.fuzz.fuzz_torch [--seconds 60] [--seed 1] [--case 4711]

A case that fails is named with what runs it alone. Chance is not guided by coverage: cases are made of
right ones, a little changed, so most get far.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

#: No case may compute longer; nor wait for six times as long, whatever else the machine does.
MOST_S: Final = 10
WORDS: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1, 2, 2**31 - 1, 2**31, -(2**31), 2**53, 2**60, 2**62, 2**63 - 1, 2**63,
    -(2**63), 2**64, 10**30, 0.5, -0.0, 1e308, float("nan"), float("inf"), "", "0", "-1", "x" * 5000, "\0",
    "\x1b[31m", "\x9b2J", "\u202e", "\r\n", "\ud800", "🙂", "<script>", "../../etc/passwd", [], {}, [[]],
    [{}], {"": ""}, [None], [1, 2], [0] * 300, {"a": {"b": [1]}}, "rank=0,kind=barrier", "world",
)  # fmt: skip


class TooSlow(Exception):
    """A case that does not end."""


def run(one: Callable[[random.Random], None], seconds: float, seed: int, name: str) -> int:
    """Run cases for so long; returns how many. What a case raises goes on, after its number was printed."""
    until = time.monotonic() + seconds
    count = 0
    while count == 0 or time.monotonic() < until:
        run_case(one, seed, count, name)
        count += 1
    return count


def run_case(one: Callable[[random.Random], None], seed: int, number: int, name: str) -> None:
    def stop(_: int, __: FrameType | None) -> None:
        raise TooSlow(f"more than {MOST_S} s")

    before = {which: signal.signal(which, stop) for which in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, MOST_S)
    signal.alarm(6 * MOST_S)
    try:
        one(random.Random(f"{seed} {number}"))
    except BaseException:
        again = f"python -m tests.fuzz.{name} --seed {seed} --case {number}"
        print(f"failed: {again}", file=sys.stderr)
        raise
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for which, handler in before.items():
            signal.signal(which, handler)


def main(one: Callable[[random.Random], None], name: str, about: str | None) -> None:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int)
    chosen = parser.parse_args()
    if chosen.case is not None:
        run_case(one, chosen.seed, chosen.case, name)
        return
    count = run(one, chosen.seconds, chosen.seed, name)
    print(f"{name}: {count:,} cases, nothing found")


# ------------------------------------------------------------------------------------- hostile values


def mutate(value: Any, chance: random.Random, *, most: int = 4) -> Any:
    """A copy with some parts of it replaced, left out, doubled or swapped."""
    changed = [copy.deepcopy(value)]
    for _ in range(chance.randint(1, most)):
        places = list(_places(changed))
        holder, key = chance.choice(places)
        action = chance.random()
        if action < 0.6:
            holder[key] = copy.deepcopy(chance.choice(WORDS))
        elif action < 0.75:
            other, other_key = chance.choice(places)
            holder[key] = copy.deepcopy(other[other_key])
        elif action < 0.85 and type(holder[key]) is int:
            holder[key] += chance.choice((-1, 1, 1000, 2**40))
        elif holder is not changed:
            if isinstance(holder, list):
                holder.insert(key, copy.deepcopy(holder[key])) if action < 0.9 else holder.pop(key)
            else:
                del holder[key]
    return changed[0]


def _places(holder: Any) -> list[tuple[Any, Any]]:
    """Every place of a value, as what has it and where."""
    found: list[tuple[Any, Any]] = []
    keys = range(len(holder)) if isinstance(holder, list) else list(holder)
    for key in keys:
        found.append((holder, key))
        if isinstance(holder[key], (list, dict)):
            found += _places(holder[key])
    return found


def to_bytes(value: Any) -> bytes:
    """As JSON, which also says what no JSON should: NaN, and halves of surrogate pairs."""
    return json.dumps(value).encode()


def spoil(data: bytes, chance: random.Random) -> bytes:
    """Some bytes changed, left out, doubled, or more in between."""
    spoilt = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        at = chance.randrange(len(spoilt) + 1)
        action = chance.randrange(4)
        if action == 0 and at < len(spoilt):
            spoilt[at] = chance.randrange(256)
        elif action == 1:
            del spoilt[at : at + chance.choice((1, 4, 64))]
        elif action == 2:
            spoilt[at:at] = spoilt[at : at + chance.choice((1, 16, 256))]
        else:
            spoilt[at:at] = chance.choice((b"\0", b"\n", b"\r\n", b"\xff", b"9" * 40, b"[" * 2000))
    return bytes(spoilt)
