"""The tables of a session while it is filled: forms, stacks and groups that ranks share.

    tables = Tables(session)
    tables.form(form), tables.stack(stack)        indexes for the columns
    of_rank = tables.groups_of(groups)            {number in the record: index}, for one rank

A group is the same on two ranks when its name is, and it is the same time that this rank makes a group
of that name, and the members that both state are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

from distdbg.diagnose.session import GroupInfo, Session, Stack
from distdbg.record.entries import Group
from distdbg.record.forms import Form
from distdbg.record.rank_list import read_ranks

Item = TypeVar("Item")


class Tables:
    """Gives each form, stack, name and group its index in the session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        #: For `RecordFile.columns`: most ranks have the same forms.
        self.parsed: dict[bytes, Form] = {}
        self._forms = {form: at for at, form in enumerate(session.forms)}
        self._stacks = {stack: at for at, stack in enumerate(session.stacks)}
        self._comms = {comm: at for at, comm in enumerate(session.comms)}
        self._groups: dict[tuple[str, tuple[int, ...]], int] = {}
        self._by_name: dict[str, int] = {}
        self._members: dict[str, tuple[int, ...]] = {}

    def form(self, form: Form | None) -> int:
        """0 for one that is not known."""
        return 0 if form is None else _intern(self._forms, self.session.forms, form)

    def stack(self, stack: Stack) -> int:
        """0 for an empty one."""
        return _intern(self._stacks, self.session.stacks, stack)

    def comm(self, comm: str) -> int:
        """0 for an empty one."""
        return _intern(self._comms, self.session.comms, comm)

    def groups_of(self, groups: Iterable[Group]) -> dict[int, int]:
        """The indexes of the groups of one rank, by their numbers in its record."""
        times: Counter[str] = Counter()
        indexes = {}
        for group in groups:
            times[group.name] += 1
            made = times[group.name]
            name = group.name if made == 1 else f"{group.name}~{made}"
            indexes[group.number] = self._group(name, group)
        return indexes

    def _group(self, name: str, group: Group) -> int:
        ranks = self._read_members(group)
        known = self._groups.get((name, ranks))
        if known is None and name in self._by_name:
            # Another group of that name, or the same one where one of both records lost its members.
            at = self._by_name[name]
            if not ranks or not self.session.groups[at].ranks:
                known = at
        if known is None:
            known = len(self.session.groups)
            self.session.groups.append(_describe(name, group, ranks))
            self._by_name.setdefault(name, known)
        elif ranks and not self.session.groups[known].ranks:
            self.session.groups[known] = _describe(name, group, ranks)
        self._groups[name, ranks] = known
        return known

    def _read_members(self, group: Group) -> tuple[int, ...]:
        """() where the text does not name as many as there are: it was too long, or is damaged."""
        known = self._members.get(group.ranks)
        if known is None:
            try:
                known = tuple(read_ranks(group.ranks))
            except ValueError:
                known = ()
            self._members[group.ranks] = known
        return known if len(known) == group.size else ()


def _describe(name: str, group: Group, ranks: tuple[int, ...]) -> GroupInfo:
    return GroupInfo(name=name, label=group.desc or group.name, ranks=ranks, backend=group.backend)


def _intern(known: dict[Item, int], table: list[Item], item: Item) -> int:
    at = known.get(item)
    if at is None:
        at = known[item] = len(table)
        table.append(item)
    return at
