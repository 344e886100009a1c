"""The details: what Enter opens. One file per kind of thing; none of them knows another's page.

`page_of` is the only way from a target to its page. A view or a detail says what its cursor is on
(`Page.target`), and the frame opens it.

finding     its evidence, who waits for whom, the cause and its victims
group       each member's progress against the median
kind        all ops of one kind on one group
op          one op on all ranks
rank        its facts, groups, ops in flight, last ops, and recorded stack
some_ranks  those of a host, of a node in the graph of waits, of a stack
text        A text in full
"""

from __future__ import annotations

from distdbg.tui.details.finding import FindingPage
from distdbg.tui.details.group import GroupPage
from distdbg.tui.details.kind import KindPage
from distdbg.tui.details.op import OpPage
from distdbg.tui.details.rank import RankPage
from distdbg.tui.details.some_ranks import HostPage, SomeRanksPage
from distdbg.tui.details.text import TextPage
from distdbg.tui.targets import (
    FindingTarget,
    GroupTarget,
    HostTarget,
    KindTarget,
    OpTarget,
    RanksTarget,
    RankTarget,
    TextTarget,
)
from distdbg.tui.view import Page


def page_of(target: object) -> Page | None:
    """The detail of it; None for what has none."""
    match target:
        case RankTarget():
            return RankPage(target.rank)
        case RanksTarget():
            return SomeRanksPage(target.ranks, target.what)
        case HostTarget():
            return HostPage(target.host)
        case GroupTarget():
            return GroupPage(target.name)
        case KindTarget():
            return KindPage(target.group, target.kind)
        case OpTarget():
            return OpPage(target.key, target.name)
        case FindingTarget():
            return FindingPage(target)
        case TextTarget():
            return TextPage(target)
        case _:
            return None
