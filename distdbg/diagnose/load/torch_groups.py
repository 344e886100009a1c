"""The process groups in the dumps of a torch job: a table by (rank, name).

torch gives groups of disjoint ranks one name, so a group is its name and its members. NCCL's dumps have
the members; gloo's do not: then the default group has all ranks, and any other those that mention it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from distdbg.diagnose.load.torch_dump import MAX_RANK, Dump, Entry, text
from distdbg.diagnose.session import GroupInfo

#: torch's descriptions that describe nothing.
_NO_DESC: Final = frozenset(("", "undefined"))
_DEFAULT: Final = "default_pg"
#: What a message was sent on, in the dumps that `distdbg export` writes: torch's analyzer needs a group of
#: its own for each direction.
OF_GROUP: Final = "of_group"
_NUMBER: Final = re.compile(r"\d{1,8}")
_MAX_RANKS_TEXT: Final = 1 << 23

Ranks = tuple[int, ...]


class TorchGroups:
    """All groups of a set of dumps. `infos` is what a session wants."""

    def __init__(self, dumps: Sequence[Dump]) -> None:
        self.infos: list[GroupInfo] = []
        self.unknown: list[str] = []
        """Labels of those whose members nobody said."""
        self._indexes: dict[tuple[str, Ranks], int] = {}
        self._parsed: dict[str, Ranks] = {}
        self._descs: dict[str, str] = {}
        self._members = {dump.rank: self._read_members(dump) for dump in dumps}
        self.world_size = self._count_world(dumps)

    def index(self, rank: int, entry: Entry) -> int:
        """The index of the group that an entry of this rank is about."""
        name, desc = group_words(entry)
        return self.named(rank, name, desc)

    def named(self, rank: int, name: str, desc: str) -> int:
        ranks = self._ranks(rank, name, desc)
        index = self._indexes.get((name, ranks))
        if index is None:
            index = self._indexes[name, ranks] = len(self.infos)
            label = self._label(name, desc)
            if not ranks:
                self.unknown.append(label)
            full = name if all(info.name != name for info in self.infos) else f"{name}@{ranks[:1]}"
            self.infos.append(GroupInfo(name=full, label=label, ranks=ranks))
        return index

    def of_rank(self, rank: int) -> list[int]:
        """All groups that the dump of a rank says it is in, entries or not."""
        return [
            self.named(rank, name, self._descs.get(name, ""))
            for name, ranks in self._members[rank].items()
            if not ranks or rank in ranks
        ]

    def _label(self, name: str, desc: str) -> str:
        desc = desc if desc not in _NO_DESC else self._descs.get(name, "")
        if desc == _DEFAULT:
            return "world"
        return name if desc in _NO_DESC else desc

    def _ranks(self, rank: int, name: str, desc: str) -> Ranks:
        own = self._members.get(rank, {}).get(name)
        if own:
            return own
        # This dump does not say; others of its group may.
        said = {known.get(name, ()) for known in self._members.values()}
        fitting = [ranks for ranks in said if rank in ranks]
        if len(fitting) == 1:
            return fitting[0]
        return tuple(range(self.world_size)) if desc == _DEFAULT else ()

    def _read_members(self, dump: Dump) -> dict[str, Ranks]:
        members = {}
        for key, config in dump.pg_config.items():
            if not isinstance(config, dict) or not key:
                continue  # gloo has one group without a name, which is none
            if OF_GROUP in config:
                continue  # of the messages of one direction, by our own export
            self._descs.setdefault(str(key), text(config.get("desc")))
            members[str(key)] = self._parse(config.get("ranks"))
        return members

    def _parse(self, ranks: object) -> Ranks:
        if isinstance(ranks, (list, tuple)):
            return tuple(r for r in ranks if type(r) is int and 0 <= r <= MAX_RANK)
        if not isinstance(ranks, str) or len(ranks) > _MAX_RANKS_TEXT:
            return ()
        if ranks not in self._parsed:
            found = (int(number) for number in _NUMBER.findall(ranks))
            self._parsed[ranks] = tuple(rank for rank in found if rank <= MAX_RANK)
        return self._parsed[ranks]

    def _count_world(self, dumps: Sequence[Dump]) -> int:
        highest = max((dump.rank for dump in dumps), default=-1)
        for ranks in {ranks for known in self._members.values() for ranks in known.values()}:
            highest = max(highest, *ranks) if ranks else highest
        return highest + 1


def group_words(entry: Entry) -> tuple[str, str]:
    """Name and description of the group of an entry; the first versions had a number alone."""
    group = entry.get(OF_GROUP, entry.get("process_group"))
    if isinstance(group, (list, tuple)) and len(group) == 2:
        return text(group[0]), text(group[1])
    if isinstance(group, str):
        return group[:1024], _DEFAULT if entry.get("pg_id") == 0 else ""
    number = str(entry.get("pg_id", "0"))[:32]
    return number, _DEFAULT if number == "0" else ""
