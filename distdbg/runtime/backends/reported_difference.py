"""A difference that one rank finds alone: the words by which the others learn of it, and their error.

The words are kept with the broken group in memory that all ranks share, which has little room: the first line
of the error, and where they fit the lines of the program that called the two sides.
"""

from __future__ import annotations

import re
from typing import Any, Final

from distdbg.errors import DistError, MismatchError

#: In the first line of every such difference.
DIFFERS: Final = "differs between ranks: "
BROKEN: Final = "the group is unusable; destroy it and create a new one"
#: Of Cause::text in native/core/segment.hpp, without the NUL.
_MAX_NBYTES: Final = 231
#: What of it is the first line's own.
_MAX_CHARACTERS: Final = 200
_CALLED: Final = re.compile(r"rank (\d+) called ")
#: What is in one line is the same on other hosts, whose words lose what cannot be printed.
_BETWEEN: Final = " | "
_CUT: Final = re.compile(r" \| (?=rank \d+ called )")


def words_for_others(error: DistError) -> str:
    """Why the group is given up, as the other ranks read it."""
    what = error.what[:_MAX_CHARACTERS]
    if not isinstance(error, MismatchError) or DIFFERS not in what:
        return what
    called = [line for line in error.details if _CALLED.match(line)]
    # Who reads this knows his own call: the one line that there is room for is that of who found it.
    for lines in (called, called[-1:]):
        text = _BETWEEN.join([what, *lines])
        if len(text.encode(errors="backslashreplace")) <= _MAX_NBYTES:
            return text
    return what


def reported_difference(words: str, by: str, **fields: Any) -> MismatchError:
    """The error of a rank that has read them; `by`: who found the difference."""
    what, *lines = _CUT.split(words)
    called = [found for found in map(_CALLED.match, lines) if found]
    ranks = sorted({int(found[1]) for found in called}) if len(called) > 1 else []
    return MismatchError(what, ranks=ranks, details=[*lines, f"{by} found it", BROKEN], **fields)
