"""Which of the two output streams: the numbers that --redirects and --tee take."""

from __future__ import annotations

import enum
import re

from distdbg.errors import UsageError

_ONE = re.compile(r"[0-3]")
_BY_RANK = re.compile(r"\d+:[0-3](,\d+:[0-3])*")


class StdStreams(enum.IntFlag):
    NONE = 0
    OUT = 1
    ERR = 2
    ALL = OUT | ERR


def parse_std(flag: str, text: str, nproc: int) -> tuple[StdStreams, ...]:
    """Return the streams of each local rank.

    '3' is for all of them; '0:1,1:2' names some, the others have none. A rank that is named and not
    there is ignored, as one command line may serve hosts of different sizes.
    """
    text = text.strip()
    if _ONE.fullmatch(text):
        return (StdStreams(int(text)),) * nproc
    if not _BY_RANK.fullmatch(text):
        raise UsageError(
            f"{flag}={text!r} is not valid; expected 0, 1, 2 or 3, or by local rank: 0:1,1:2",
            details=["0: none, 1: stdout, 2: stderr, 3: both"],
        )
    streams = [StdStreams.NONE] * nproc
    for pair in text.split(","):
        rank, _, number = pair.partition(":")
        if int(rank) < nproc:
            streams[int(rank)] = StdStreams(int(number))
    return tuple(streams)
