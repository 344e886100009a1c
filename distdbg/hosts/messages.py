"""What goes over a link: 'j' and a JSON object, or 'z' and the same deflated. Pure.

    up      {"hosts": batch} {"ranks": batch}     what changed (`columns.py`)
            {"ask": order}                        to be numbered by the root
            {"accounts": [[node, request, age in ns, account], ...]}    where ranks wait (`accounts.py`)
            {"keep": [[group, number, why], ...]}     ops that all hosts keep for traces (`tail_sampling.py`)
            {"seen": [number]}                    the last order known here, when a link begins
            {"ping": [a]}
    down    {"order": order}
            {"keep": [[group, number, why], ...]}     as above
            {"vouch": [number, rank, ...]}        say again where your ranks stand
            {"counts": [hosts in touch, [[number, hosts that have done it], ...]]}
            {"pace": [bytes per second, rows per second, least period in ns]}
            {"pong": [a, b, the parent's offset to the root, its error; 0: not known]}

A message may hold several of these; words that are not known are passed over. Pings and pongs also show
that the other end lives.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, Final

MAX_MESSAGE_NBYTES: Final = 1 << 20
MAX_INFLATED_NBYTES: Final = 8 << 20
_WORTH_DEFLATING: Final = 160


class BadMessage(ValueError):
    """The other end does not speak as a node does."""


def pack_message(words: dict[str, Any]) -> bytes:
    """A message as it goes over a link."""
    text = json.dumps(words, separators=(",", ":")).encode()
    if len(text) > _WORTH_DEFLATING:
        return b"z" + zlib.compress(text, 6)
    return b"j" + text


def unpack_message(message: bytes) -> dict[str, Any]:
    """BadMessage for what is none, or would take too much room."""
    try:
        if message[:1] == b"z":
            inflating = zlib.decompressobj()
            text = inflating.decompress(message[1:], MAX_INFLATED_NBYTES)
            if not inflating.eof or inflating.unused_data:
                raise BadMessage("a message is cut short, or too long")
        elif message[:1] == b"j":
            text = message[1:]
        else:
            raise BadMessage("a message of an unknown kind")
        words = json.loads(text)
    except (zlib.error, ValueError, RecursionError) as error:
        raise BadMessage(str(error)) from error
    if not isinstance(words, dict):
        raise BadMessage("a message is an object")
    return words


def read_whole(value: object, count: int) -> list[int]:
    """Read so many whole numbers. BadMessage."""
    if (
        not isinstance(value, list)
        or len(value) != count
        or not all(type(one) is int and abs(one) < 1 << 62 for one in value)
    ):
        raise BadMessage("whole numbers were expected")
    return value


def read_counts(value: object) -> list[Any]:
    """What "counts" says. BadMessage."""
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[1], list):
        raise BadMessage("counts were expected")
    read_whole(value[:1], 1)
    for pair in value[1]:
        read_whole(pair, 2)
    return value
