"""Finds who uses a FileStore's file, and whether what lies there was left by a run that is over.

Every store that opens the file enters itself and leaves when it is closed. So a file is

finished  when as many have entered as the run has ranks and all have left; the last removes it
stale     when all who have not left are processes that have ended: it is started afresh
unclear   when some of them have ended, and of the others nothing can be known from here, since
          they are on another host: an error says which file to delete
in use    otherwise

A file whose users are all on other hosts is taken to be in use, because that is how ranks on
several hosts meet. Nothing here touches the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum

from distdbg.runtime.rendezvous.process import ProcessIdentity


class FileState(Enum):
    """What a file is to someone who opens it."""

    IN_USE = "in use"
    OVER = "over"
    UNCLEAR = "unclear"


@dataclass(slots=True)
class Users:
    """Those who have entered and not left, and how many have entered at all."""

    present: dict[str, ProcessIdentity] = field(default_factory=dict)
    entered: int = 0

    def enter(self, user: str, value: bytes) -> None:
        """Take in what to_entry() made."""
        facts = json.loads(value)
        self.entered += 1 if facts.pop("is_counted") else 0
        self.present[user] = ProcessIdentity(**facts)

    def leave(self, user: str) -> None:
        """Forget one; unknown ones are none of our business."""
        self.present.pop(user, None)

    def is_finished(self, world_size: int) -> bool:
        """Whether nobody is left, and nobody is still to come."""
        return not self.present and 0 < world_size <= self.entered


def to_entry(process: ProcessIdentity, *, is_counted: bool) -> bytes:
    """What a user writes when it enters; a clone is not counted as another rank."""
    return json.dumps({**asdict(process), "is_counted": is_counted}).encode()


def judge(
    users: Users,
    world_size: int,
    is_gone: Callable[[ProcessIdentity], bool],
    is_alive: Callable[[ProcessIdentity], bool],
) -> FileState:
    """What the file is to somebody who opens it now."""
    if users.is_finished(world_size):
        return FileState.OVER
    gone = [user for user, process in users.present.items() if is_gone(process)]
    if not gone:
        return FileState.IN_USE
    if len(gone) == len(users.present):
        return FileState.OVER
    others = [process for user, process in users.present.items() if user not in gone]
    return FileState.UNCLEAR if not any(map(is_alive, others)) else FileState.IN_USE


def describe(present: Mapping[str, ProcessIdentity], limit: int = 8) -> list[str]:
    """One line per user, for an error."""
    lines = [f"opened by pid {p.pid} on host {p.host}" for p in present.values()]
    return lines[:limit] + ([f"and {len(lines) - limit} more"] if len(lines) > limit else [])
