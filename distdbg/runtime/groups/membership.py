"""Checks that all ranks make the same groups in the same order.

Every rank counts the groups that all create together, so the n-th creation of one rank meets the n-th
of the others, members or not, in the store of group n:

    first          what the first rank to arrive makes, set once; ranks that differ from it raise
    compared       a counter: of the ranks that make the same as the first one
    odd            what the first rank that differed from that makes, set once
    words/<rank>   what one rank makes, and where; set first, so that a rank that has gone on is
                   included
    report         the words of all ranks that arrived in time, set once: what all raise
    heard          how many have read it
    reason         the creation whose difference ends this one: this group's own name, or an earlier one;
                   set once, before `all_here`, so that a rank that sees the end also sees why
    all_here       what members wait for (runtime/groups/group_join.py), set once: "differ" ends that wait as
                   well, but not after all members have come, since some of them went on then

When all ranks have compared, the last one removes the keys. So agreement costs three requests to the store,
nobody waits for ranks that are not members, and all waiting ranks see a difference at once. A rank that has
gone on (it was no member, or all members of its group agreed) sees it when it next waits for a group: it
raises the same error there, since a rank that differed may never arrive. Its other ops are right and do not
raise. If a rank ends because of the error, ranks that need it get RankLeft.

Groups that are made by their members alone (use_local_synchronization, split_group) have names of their
own, so ranks with different orders never meet: they deadlock. A rank that has waited for a moment writes to
`waits/<rank>` for whom, and follows who waits for whom; a cycle that is the same in two looks is an error on
all its ranks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from distdbg.check.group_differences import (
    Words,
    explain_cycle,
    explain_groups,
    lines_of,
    show_group,
)
from distdbg.errors import MismatchError, RankLeft
from distdbg.runtime.store import PrefixStore, Store

#: What all_here holds where members differ.
DIFFER = b"differ"
#: How long ranks that learn of a difference wait for those that have not come yet.
_SETTLE_S = 0.3
#: How long one that has read the report stays for those that have not: it may be the rank that serves the
#: store, and the error its end.
_STAY_S = 0.5
_SLICE_S = 0.01
#: JSON of what is not there.
_NONE = "null"


def is_compared(key: str) -> bool:
    """Whether a key of a group's store is one by which its creation is compared."""
    return key in ("first", "odd", "compared") or key.startswith("words/")


class Creation:
    """One rank's part in the making of one group."""

    def __init__(
        self,
        store: Store,
        name: str,
        me: int,
        ranks: Sequence[int],
        function: str,
        site: str,
        reported: set[str],
    ) -> None:
        self._root = store
        #: The names of the creations whose difference this rank has been told.
        self._reported = reported
        self._store = PrefixStore(f"{name}/", store)
        self._me = me
        self.name = name
        self.words: Words = {
            "rank": me,
            "ranks": list(ranks),
            "name": name,
            "function": function,
            "site": site,
        }
        self._cycle: tuple[int, ...] = ()
        self._has_reported = False

    def compare(self, everybody: Sequence[int]) -> None:
        """Raise MismatchError when another of all ranks makes another group as its n-th."""
        mine = json.dumps(self.words)
        self._store.set(f"words/{self._me}", mine)
        first = json.loads(self._store.compare_set("first", "", mine))
        if first["ranks"] != self.words["ranks"]:
            self._store.compare_set("odd", "", mine)
            raise self._differ()
        # Nobody asks again: a rank that differs would not have counted.
        if self._store.add("compared", 1) == len(everybody):
            for key in ("first", "compared", *(f"words/{rank}" for rank in everybody)):
                self._store.delete_key(key)

    def given_up(self) -> MismatchError:
        """Return the error of a group that another rank has given up."""
        reason = self._store.get("reason").decode()
        return self._differ() if reason == self.name else self._differ_late(reason)

    def _differ(self) -> MismatchError:
        """Tell the others, collect what they make, and return the error."""
        self._reported.add(self.name)
        self._root.set("differ", self.name)
        self._give_up(self.name)
        return explain_groups(self._collect(self._store, [self.words]), self._me)

    def _give_up(self, reason: str) -> None:
        self._store.compare_set("reason", "", reason)
        self._store.compare_set("all_here", "", DIFFER)

    def _collect(self, store: Store, own: Sequence[Words]) -> list[Words]:
        """What each rank makes that has come, the first one's words and this rank's `own` included."""
        # A rank that differs does not count as one that has compared, so both are there.
        found = store.multi_get(["first", "odd"])
        known = {words["rank"]: words for words in (*map(json.loads, found), *own)}
        deadline = time.monotonic() + _SETTLE_S
        while True:
            # A rank in any of the lists may be on its way here; the others need not come.
            involved = {rank for words in known.values() for rank in words["ranks"]}
            for rank in sorted(involved - known.keys()):
                key = f"words/{rank}"
                if store.check([key]):
                    known[rank] = json.loads(store.get(key))
            if involved <= known.keys() or time.monotonic() >= deadline:
                # One report for all, so that all say the same.
                mine = json.dumps(list(known.values()))
                report: list[Words] = json.loads(store.compare_set("report", "", mine))
                self._stay(store, len(report))
                return report
            time.sleep(_SLICE_S)

    def _stay(self, store: Store, readers: int) -> None:
        deadline = time.monotonic() + _STAY_S
        heard = store.add("heard", 1)
        while heard < readers and time.monotonic() < deadline:
            time.sleep(_SLICE_S)
            heard = store.add("heard", 0)

    def look(self, missing: Sequence[int]) -> None:
        """Called now and then while members are waited for: raise when they wait for this rank."""
        self._root.set(f"waits/{self._me}", json.dumps({**self.words, "missing": list(missing)}))
        self._has_reported = True
        if self._root.check(["differ"]):
            earlier = self._root.get("differ").decode()
            if earlier not in self._reported:
                raise self._differ_late(earlier)
        message = f"cycle/{self._me}"
        if self._root.check([message]):
            cycle = json.loads(self._root.get(message))
            self._root.delete_key(message)
            # One that was told to this rank in a wait that it has given up is no cycle any more.
            if any(words["rank"] == self._me and words["name"] == self.name for words in cycle):
                raise explain_cycle(cycle)
        cycle = self._find_cycle(missing)
        ranks = tuple(words["rank"] for words in cycle)
        if cycle and ranks == self._cycle:
            for rank in ranks:
                if rank != self._me:  # it would look in vain once this rank has given up
                    self._root.set(f"cycle/{rank}", json.dumps(cycle))
            raise explain_cycle(cycle)
        self._cycle = ranks

    def left(self, rank: int, how: str) -> RankLeft:
        """Return the error of a rank that waits for one that has left all groups: it makes one more."""
        return RankLeft(
            f"rank {rank} {how}; this rank needed it in {self.words['function']} for "
            f"{show_group(self.words['ranks'])}",
            peer=rank,
            how=how,
            kind="new_group",
            seq=int(self.name) if self.name.isdigit() else -1,
            group=self.name,
            ranks=[rank],
            details=[
                *lines_of([self.words]),
                "the group was not made; other groups are unaffected",
            ],
            hint="every rank must make the same groups in the same order, including groups it is not in",
        )

    def done(self) -> None:
        """This rank waits no longer, or has given up."""
        if self._has_reported:
            self._root.delete_key(f"waits/{self._me}")

    def _differ_late(self, earlier: str) -> MismatchError:
        """Give up this group, on all ranks that wait for it: others may have stopped before it."""
        self._reported.update((earlier, self.name))
        self._give_up(earlier)
        error = explain_groups(self._collect(PrefixStore(f"{earlier}/", self._root), []), self._me)
        error.details.insert(
            -1, f"this rank had gone on and waited for {show_group(self.words['ranks'])}"
        )
        return error

    def _find_cycle(self, missing: Sequence[int]) -> list[Words]:
        """Ranks that wait for each other from this one on back to it; empty when there are none."""
        waiting: dict[int, Words | None] = {self._me: {**self.words, "missing": list(missing)}}
        path: list[int] = []

        def follow(rank: int) -> bool:
            if rank not in waiting:
                waiting[rank] = self._waits(rank)
            words = waiting[rank]
            if words is None or rank in path:
                return False
            path.append(rank)
            for other in words["missing"]:
                # The others of one group just have not come yet.
                if other == self._me and rank != self._me and words["name"] != self.name:
                    return True
                if follow(other):
                    return True
            path.pop()
            return False

        follow(self._me)
        return [words for rank in path if (words := waiting[rank]) is not None]

    def _waits(self, rank: int) -> Words | None:
        # Not `get`: the rank may go on and delete it at any time, and `get` would wait for the next one.
        words: Words | None = json.loads(self._root.compare_set(f"waits/{rank}", _NONE, _NONE))
        return words
