"""How the ranks of each launcher ended in a round, published to the others through the store.

Notes are numbered as they come, so each launcher reads each of them once, however many there are:

    notes        how many were begun
    note/<n>     JSON: who says it, and what
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, Self, get_args

from distdbg.errors import DistError

if TYPE_CHECKING:
    from distdbg.launch.rendezvous.round import LauncherRound

_LONGEST_TEXT = 2000
_Kind = Literal["finished", "failed", "leaving"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherNote:
    """What one launcher says of its ranks, once: that all ended well, that some failed, or that
    it leaves and ends them."""

    kind: _Kind
    what: str = ""
    """What failed first there, in one line; or why it leaves."""
    exit_code: int = 1
    """What the launcher there ends with, after a failure."""

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "what": self.what[:_LONGEST_TEXT]})

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """ValueError for what is none."""
        found = json.loads(text)
        if not isinstance(found, dict) or found.get("kind") not in get_args(_Kind):
            raise ValueError("not a note")
        code = found.get("exit_code")
        return cls(
            kind=found["kind"],
            what=str(found.get("what", ""))[:_LONGEST_TEXT],
            exit_code=code if isinstance(code, int) and 0 < code < 256 else 1,
        )


class Notes:
    """The notes of one round.

    Reading and writing never raise: whether the store is gone is the rendezvous' to say. Read them
    after asking the rendezvous: who begins another round because of a failure has noted it before.
    """

    def __init__(self, round: LauncherRound) -> None:
        self._store = round.store
        self._node_rank = round.node_rank
        self._names = [node.name for node in round.nodes]
        self._count = 0
        self._pending: set[int] = set()
        self._found: dict[str, LauncherNote] = {}
        self._left: set[int] = set()

    def write(self, note: LauncherNote) -> None:
        """Tell the others; of one launcher they keep the first."""
        self._write({"node": self._node_rank, "note": note.to_json()})

    def write_left(self, ranks: Iterable[int]) -> None:
        """Tell the others which ranks have ended well while others of this launcher run on."""
        self._write({"node": self._node_rank, "left": sorted(ranks)})

    def read(self) -> Mapping[str, LauncherNote]:
        """The notes of all launchers so far, by name; this one's as well."""
        try:
            count = self._store.add("notes", 0)
            self._pending.update(range(self._count + 1, count + 1))
            self._count = count
            for number in sorted(self._pending):
                # Not there yet: it is just being written, or its launcher died over it.
                if self._store.check([_key(number)]):
                    self._take(self._store.get(_key(number)))
                    self._pending.remove(number)
        except DistError:
            pass  # as far as is known
        return self._found

    @property
    def left(self) -> frozenset[int]:
        """The ranks of all launchers that ended well while others ran on, as last read."""
        return frozenset(self._left)

    def _write(self, words: dict[str, object]) -> None:
        try:
            self._store.set(_key(self._store.add("notes", 1)), json.dumps(words))
        except DistError:
            return

    def _take(self, text: bytes) -> None:
        try:
            match json.loads(text):
                case {"node": int() as node, "note": str() as note}:
                    self._found.setdefault(self._names[node], LauncherNote.from_json(note))
                case {"left": list() as ranks}:
                    self._left.update(rank for rank in ranks if isinstance(rank, int))
        except (ValueError, IndexError):
            return  # of another version


def _key(number: int) -> str:
    return f"note/{number}"
