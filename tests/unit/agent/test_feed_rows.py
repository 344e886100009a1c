"""What a dashboard makes of an agent's answers."""

from distdbg.agent.feed.rows import core_of, wait_rows


def test_who_waits_for_a_deadlock_is_not_its_core() -> None:
    told = [
        {"rank": rank, "on": [on], "is_any": False, "op": "", "site": "", "can_go_on": False}
        for rank, on in ((0, 1), (1, 0), (2, 1))
    ]
    verdict = {"findings": [{"kind": "deadlock", "ranks": [0, 1]}, {"kind": "dead", "ranks": [3]}]}
    rows = wait_rows(told, {}, (), core_of(verdict))
    assert [(row.rank, row.can_go_on) for row in rows] == [(0, False), (1, False), (2, True)]
    # Before the verdict is there, what the agent says of the wait.
    assert not any(row.can_go_on for row in wait_rows(told, {}, (), core_of(None)))
