"""What accounts say of groups that ranks have destroyed."""

from __future__ import annotations

import os
from pathlib import Path

from distdbg.agent.judging.account import AccountMaker
from distdbg.agent.judging.live_session import LiveFacts, ReceivedAccount, make_session
from distdbg.follow.tail import TailedRecord
from distdbg.follow.watched_rank import WatchedRank
from distdbg.record.rank_state import RankState
from tests.support.record_builder import RecordBuilder


def test_the_line_that_destroyed_a_group_is_known_to_the_agent_of_all(tmp_path: Path) -> None:
    build = RecordBuilder(rank=0, world_size=2, host="n14", pid=os.getpid())
    for name in ("0", "evaluation", "old"):
        build.add_group(name, ranks="0-1", size=2)
    site = build.add_stack([("/home/ada/train.py", 95, "main")])
    build.set_group(2, closed_ns=7, closed_site=site)
    build.set_group(3, closed_ns=8)
    path = tmp_path / "rank00000.ddr"
    path.write_bytes(build.to_bytes())
    record = TailedRecord(path, 0)
    watched = WatchedRank(
        rank=0,
        host="n14",
        pid=os.getpid(),
        record=record,
        pulse=record.pulse(),
        current_ops=record.current_ops(),
        is_exact=True,
        state=RankState.WAITING,
    )
    account = AccountMaker("n14").make([watched], 1000)
    session = make_session([ReceivedAccount(account, 0)], LiveFacts(run="r", source="s"))
    record.close()
    found = {session.groups[at].label: far for at, far in session.ranks[0].progress.items()}
    assert found["0"].closed_ns is None
    assert (found["evaluation"].closed_ns, found["evaluation"].closed_at) == (
        7,
        "train.py:95 (main)",
    )
    assert (found["old"].closed_ns, found["old"].closed_at) == (8, "")
