"""The error in a message that carries the traceback of a worker, of a process or of another rank. Pure.

    OSError: Caught OSError in DataLoader worker process 0.
    Original Traceback (most recent call last):
      ...
      File "/job/train.py", line 7, in __getitem__
        raise OSError("bad shard 9")
    OSError: bad shard 9

says 'OSError: bad shard 9 (in DataLoader worker process 0)', and where that was raised.

Only messages of a known form: of others, that may quote the log of any program, nothing says that the
traceback in them is of what failed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_HEAD: Final = "Traceback (most recent call last):"
#: What stands before a head: spaces, or the rail of an exception group.
_RAIL: Final = re.compile(r" *(?:[|+] )?")
_ERROR: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:: .*)?")
#: What stands between two tracebacks of a chain.
_CHAINED: Final = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
#: torch's ExceptionWrapper, which raises an error of that type again.
_CAUGHT: Final = re.compile(r"\w+: Caught (\S+) (in .+?)\.\nOriginal (?=Traceback \()")
#: torch.multiprocessing.spawn.
_SPAWNED: Final = re.compile(
    r"(ProcessRaisedException: )\n\n-- (Process \d+ terminated with the following error:)\n"
)
#: torch's CheckpointException, which all ranks raise for the ranks that have failed.
_OF_RANKS: Final = "CheckpointException: CheckpointException ranks:"
_OF_RANK: Final = re.compile(r"\(RANK (\d{1,9})\)$")
#: What a pool of processes puts around the traceback of a worker.
_QUOTES: Final = '\n"""\n'


@dataclass(frozen=True, slots=True)
class CarriedError:
    """What such a message says."""

    text: str
    """'OSError: bad shard 9 (in DataLoader worker process 0)': one line."""
    traceback: str
    """The traceback in it, as Python prints one."""

    @property
    def type(self) -> str:
        """'OSError'."""
        return self.text.partition(":")[0].partition(" ")[0]


@dataclass(frozen=True, slots=True)
class _Part:
    """One traceback of a message."""

    frames: tuple[str, ...]
    said: str
    """'OSError: bad shard 9'."""

    @property
    def type(self) -> str:
        """'OSError'."""
        return _type_in(self.said)

    @property
    def traceback(self) -> str:
        """As Python prints it."""
        return "\n".join((_HEAD, *self.frames, self.said, ""))


def read_carried(text: str, own_rank: int | None = None) -> CarriedError | None:
    """Read the text of an error, its type in front; None where that is not of one that carries a traceback.

    `own_rank`: this rank, as the message numbers ranks.
    """
    if text.startswith(_OF_RANKS):
        return _read_of_ranks(text, own_rank)
    if caught := _CAUGHT.match(text):
        part = _read_chain(text[caught.end() :])
        if part is None or part.type != caught[1]:
            return None
        return CarriedError(f"{part.said} ({caught[2]})", part.traceback)
    if spawned := _SPAWNED.match(text):
        part = _read_chain(text[spawned.end() :])
        said = f"{spawned[1]}{spawned[2]} "
        return None if part is None else CarriedError(said + part.said, part.traceback)
    return None


def read_remote(text: str, error: str) -> CarriedError | None:
    """Read what a pool of processes says of a worker that raised `error`: 'OSError: bad shard 9'."""
    part = _read_chain(text.removeprefix(_QUOTES))
    if part is None or part.type != _type_in(error):
        return None
    return CarriedError(part.said, part.traceback)


def words_of_failed(text: str) -> str:
    """What the rank says itself of which another one says 'CheckpointException: ... (RANK 1)'; ''."""
    kind, _, rest = text.partition(": ")
    said = _OF_RANK.sub("", rest)
    return f"{said.rstrip()} ({kind})" if said != rest and kind.isidentifier() else ""


def _read_chain(text: str) -> _Part | None:
    """Of the tracebacks of a chain the last is what was raised; its message may quote more."""
    lines = text.splitlines()
    last, at = None, 0
    while at < len(lines) and _HEAD in lines[at]:
        last = _read_part(lines, at) or last
        at = next(
            (later for later in range(at + 1, len(lines)) if _HEAD in lines[later]), len(lines)
        )
        if lines[at - 2].strip(" |") not in _CHAINED:
            break
    return last


def _read_of_ranks(text: str, own_rank: int | None) -> CarriedError | None:
    """Of several ranks this one's, else the first's."""
    lines = text.splitlines()
    parts = [
        (int(of_rank[1]), part)
        for at, line in enumerate(lines)
        if line.startswith(_HEAD)
        and (of_rank := _OF_RANK.search(line)) is not None
        and (part := _read_part(lines, at)) is not None
    ]
    if not parts:
        return None
    rank, part = next((one for one in parts if one[0] == own_rank), parts[0])
    kind = _type_in(text)
    said = f"{part.said} ({kind})" if rank == own_rank else f"{kind}: {part.said} (RANK {rank})"
    return CarriedError(said, part.traceback)


def _read_part(lines: Sequence[str], at: int) -> _Part | None:
    """One that has an end; None for a member of an exception group as well, whose group says what it is."""
    rail = _RAIL.match(lines[at])
    assert rail is not None  # it may be empty
    if rail[0].endswith("| "):
        return None
    before = rail[0].replace("+", "|")
    frames: list[str] = []
    for line in lines[at + 1 :]:
        rest = line.removeprefix(before)
        if not line.startswith(before):
            return None
        if not rest.startswith("  "):
            return _Part(tuple(frames), _shorten_type(rest)) if _ERROR.fullmatch(rest) else None
        frames.append(rest)
    return None


def _type_in(said: str) -> str:
    """'OSError' of 'OSError: bad shard 9'."""
    return said.partition("\n")[0].partition(":")[0]


def _shorten_type(said: str) -> str:
    """'OutOfMemoryError: ...' of 'torch.OutOfMemoryError: ...'."""
    name, colon, rest = said.partition(":")
    return f"{name.rpartition('.')[2]}{colon}{rest}"
