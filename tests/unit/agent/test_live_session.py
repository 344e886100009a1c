from __future__ import annotations

import json
from typing import Any

import pytest

from distdbg.agent.judging import judge
from distdbg.agent.judging.account import latent_of, name_groups, ranks_of, without_ops
from distdbg.agent.judging.judge import judge_accounts, plain_waits
from distdbg.agent.judging.live_session import LiveFacts, ReceivedAccount, make_session
from distdbg.diagnose import verdict
from distdbg.diagnose.finding import FindingKind, Severity
from distdbg.record.entries import KIND_LABELS, Group
from distdbg.record.format import Flag
from distdbg.record.rank_state import RankState

RECV = KIND_LABELS.index("recv")


def row(rank: int, peer: int | None, state: str = "waiting", **more: Any) -> dict[str, Any]:
    """A rank that is in a recv from `peer`."""
    ops = []
    if peer is not None:
        ops = [[7, 1000, 0, 1, 0, RECV, int(Flag.MESSAGE), peer, 0, 0, 1, 100 + rank, 0]]
    facts = {"rank": rank, "pid": 100 + rank, "state": state, "since": 2000, "moved": 1000}
    return facts | {"last": 7, "progress": [[0, 3, 3]], "ops": ops, "level": 2} | more


def account(host: str, *rows: dict[str, Any], now: int = 5000) -> dict[str, Any]:
    found = {
        "now": now,
        "host": host,
        "world": 3,
        "groups": [["0", "world", "0-2", "cpu"]],
        "stacks": [[], [["/home/ada/train.py", 88, "step"]]],
        "forms": [""],
        "ranks": list(rows),
    }
    copy: dict[str, Any] = json.loads(json.dumps(found))  # as it travels
    return copy


def test_accounts_of_two_hosts_are_one_session_on_one_clock() -> None:
    one = ReceivedAccount(account("a", row(0, 1), now=5000), 90_000)
    other = ReceivedAccount(account("b", row(1, 0), row(2, None, "running"), now=700_000), 90_500)
    session = make_session([one, other], LiveFacts(now_ns=91_000, wall_ns=1_000_000))
    assert (session.world_size, sorted(session.ranks)) == (3, [0, 1, 2])
    assert session.groups[0].ranks == (0, 1, 2)
    # Wall time is 909,000 ahead of this host's clock, on which the first began 86,000 after its own.
    assert session.time_ns(0, 1000) == 1000 + 85_000 + 909_000
    assert session.time_ns(1, 700_000) == 90_500 + 909_000
    activity = session.ranks[2].activity
    assert activity is not None
    assert activity.state is RankState.RUNNING


def test_a_deadlock_across_hosts_is_found_in_what_they_tell() -> None:
    heard = [
        ReceivedAccount(account("a", row(0, 1)), 90_000),
        ReceivedAccount(account("b", row(1, 0), row(2, None, "running")), 90_000),
    ]
    judged = judge_accounts(heard, LiveFacts(now_ns=91_000, wall_ns=91_000))
    assert judged.case is not None
    assert judged.case.finding.kind is FindingKind.DEADLOCK
    assert (judged.case.proven_kind, judged.blocked) == ("deadlock", {0, 1})
    assert judged.plain["findings"][0]["ranks"] == [0, 1]
    assert [(wait["rank"], wait["on"]) for wait in plain_waits(judged)] == [(0, [1]), (1, [0])]
    assert "train.py:88 (step)" in "\n".join(judged.lines)


def test_what_ranks_of_another_host_have_found_is_told_of_them_alone() -> None:
    reported = {
        "type": "LeakedWork",
        "what": "the Work of all_reduce on group 'world' was dropped, and nobody waited for it",
        "at_ns": 4000,
        "kind": "all_reduce",
        "details": [f"rank 2 started it at {'x' * 400}.py:9 (step)"] * 9,
        "control": {"not": "carried"},
    }
    [leaked] = latent_of(
        [{**reported, "rank": 2}, {**reported, "rank": 2, "type": "MismatchError"}]
    )
    assert "control" not in leaked
    assert len(json.dumps(leaked)) < 2000
    far = account("b", row(2, None, "running"))
    far["found"] = [
        leaked,
        {**reported, "rank": 0, "at_ns": "x"},
        {**reported, "rank": 2, "at_ns": 1 << 80},
        7,
    ]
    heard = [
        ReceivedAccount(account("a", row(0, None, "running")), 90_000),
        ReceivedAccount(far, 90_000),
    ]
    session = make_session(heard, LiveFacts(now_ns=91_000, wall_ns=91_000))
    assert [one.type for one in session.ranks[2].found] == ["LeakedWork"] * 2
    assert session.ranks[0].found == ()
    judged = judge_accounts(heard, LiveFacts(now_ns=91_000, wall_ns=91_000))
    leaks = [one["ranks"] for one in judged.plain["findings"] if one["kind"] == "leaked work"]
    assert leaks
    assert all(ranks == [2] for ranks in leaks)


def test_a_thread_that_issues_ops_and_waits_for_nothing_is_a_way_out() -> None:
    busy = row(1, 0, issuers=[101, 555], threads=[101, 555])
    heard = [ReceivedAccount(account("a", row(0, 1), busy, row(2, None, "running")), 90_000)]
    judged = judge_accounts(heard, LiveFacts(now_ns=91_000, wall_ns=91_000))
    assert judged.blocked == frozenset()
    gone = row(1, 0, issuers=[101, 555], threads=[101])
    heard = [ReceivedAccount(account("a", row(0, 1), gone, row(2, None, "running")), 90_000)]
    judged = judge_accounts(heard, LiveFacts(now_ns=91_000, wall_ns=91_000))
    assert judged.blocked == {0, 1}


def test_nothing_is_proven_of_a_rank_with_more_in_flight_than_is_told() -> None:
    heard = [ReceivedAccount(account("a", row(0, 1), row(1, 0, cut=True)), 90_000)]
    assert judge_accounts(heard, LiveFacts(now_ns=91_000, wall_ns=91_000)).blocked == frozenset()


def test_what_is_left_of_an_account_that_is_too_long_proves_nothing_and_hides_no_death() -> None:
    end = {"rank": 2, "pid": 102, "host": "b", "ended_ns": 1, "wall_ns": 1, "cause": "signal"}
    dead = row(2, None, "dead", end=end | {"signal": 9})
    short = without_ops(account("b", row(1, 0), dead))
    heard = [ReceivedAccount(account("a", row(0, 1)), 90_000), ReceivedAccount(short, 90_000)]
    judged = judge_accounts(heard, LiveFacts(now_ns=91_000, wall_ns=91_000))
    assert judged.blocked == frozenset()
    assert judged.case is not None
    assert (judged.case.finding.kind, judged.case.finding.ranks) == (FindingKind.DEAD_RANK, (2,))


def test_an_account_that_cannot_be_read_is_left_out_and_named() -> None:
    good = ReceivedAccount(account("a", row(0, 1)), 90_000)
    for damage in (
        {"ranks": [{"rank": 1}]},
        {"groups": [["0"]]},
        {"now": "noon"},
        {"ranks": [row(1, 0, state="bored")]},
        {"ranks": [row(1, 0) | {"ops": [[1, 2]]}]},
        {"forms": ["{"]},
    ):
        bad = ReceivedAccount(account("b", row(1, 0)) | damage, 90_000)
        session = make_session([good, bad], LiveFacts(now_ns=91_000, wall_ns=91_000))
        assert sorted(session.ranks) == [0]
        [lack] = session.lacks
        assert lack.startswith("the account of host b cannot be read")


def reported(kind: str, at_ns: int | None) -> dict[str, Any]:
    facts = {
        "rank": 0,
        "type": kind,
        "what": f"{kind} it is",
        "group": "world",
        "seq": 2,
        "ranks": [1],
    }
    return facts | ({} if at_ns is None else {"at_ns": at_ns})


@pytest.mark.parametrize(
    "kind",
    ["MismatchError", "OpTimeout", "PeerLost", "RankLeft", "NonFiniteError", "DivergedError"],
)
def test_an_error_after_which_ops_went_well_is_not_what_ranks_wait_in(kind: str) -> None:
    rows = [row(0, 1), row(1, None, "running"), row(2, None, "running")]
    heard = [ReceivedAccount(account("a", *rows), 90_000)]
    facts = LiveFacts(
        now_ns=91_000, wall_ns=91_000, found=[reported(kind, 500)], last_good={0: 800}
    )
    judged = judge_accounts(heard, facts)
    assert judged.case is not None
    assert (judged.case.finding.kind, judged.case.finding.ranks) == (FindingKind.STALL, (1,))
    assert not judged.verdict.is_root_a_fault
    [_, over] = judged.verdict.findings
    assert over.severity is not Severity.ERROR


@pytest.mark.parametrize(("at_ns", "good_ns"), [(900, 800), (None, 800), (900, None)])
@pytest.mark.parametrize("kind", ["MismatchError", "OpTimeout", "NonFiniteError"])
def test_an_error_after_which_no_op_is_known_to_have_gone_well_may_be_the_cause(
    kind: str, at_ns: int | None, good_ns: int | None
) -> None:
    rows = [row(0, 1), row(1, None, "running"), row(2, None, "running")]
    heard = [ReceivedAccount(account("a", *rows), 90_000)]
    good = {} if good_ns is None else {0: good_ns}
    facts = LiveFacts(now_ns=91_000, wall_ns=91_000, found=[reported(kind, at_ns)], last_good=good)
    judged = judge_accounts(heard, facts)
    assert judged.case is not None
    assert judged.case.finding.severity is Severity.ERROR
    assert judged.verdict.is_root_a_fault


def test_a_suspicion_of_long_ago_is_not_what_ranks_wait_in() -> None:
    rows = [row(0, 1), row(1, None, "running"), row(2, None, "running")]
    heard = [ReceivedAccount(account("a", *rows), 90_000)]
    facts = LiveFacts(now_ns=91_000, wall_ns=91_000, found=[reported("Suspicion", 500)])
    judged = judge_accounts(heard, facts)
    assert [finding.kind for finding in judged.verdict.findings] == [
        FindingKind.STALL,
        FindingKind.SUSPICION,
    ]


def test_groups_that_were_made_again_are_told_apart() -> None:
    def group(number: int, name: str) -> Group:
        return Group(
            number=number, created_ns=0, name=name, desc="", ranks="0-1", backend="cpu", size=2,
            rank=0, timeout_ns=0, stack=(),
        )  # fmt: skip

    names = name_groups([group(3, "dp"), group(1, "dp"), group(2, "tp")])
    assert names == {1: "dp", 2: "tp", 3: "dp~2"}


def test_ranks_are_read_in_the_order_of_the_group() -> None:
    assert ranks_of("4,0-2") == (4, 0, 1, 2)
    assert ranks_of("a-b") == ()


def test_ops_are_matched_once_for_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def count(name: str) -> None:
        real = getattr(verdict, name)

        def counted(*arguments: Any) -> Any:
            calls.append(name)
            return real(*arguments)

        for module in (verdict, judge):
            monkeypatch.setattr(module, name, counted, raising=False)

    count("match")
    count("find_waits")
    heard = [ReceivedAccount(account("a", row(0, 1), row(1, 0)), 90_000)]
    judged = judge_accounts(heard, LiveFacts(now_ns=91_000, wall_ns=91_000))
    assert (judged.blocked, sorted(judged.waits)) == ({0, 1}, [0, 1])
    assert sorted(calls) == ["find_waits", "match"]


def test_an_account_without_the_line_that_destroyed_a_group_is_read() -> None:
    one = ReceivedAccount(account("a", row(0, 1, progress=[[0, 3, 3, 4000, None]])), 90_000)
    far = make_session([one], LiveFacts(now_ns=91_000)).ranks[0].progress[0]
    assert (far.closed_ns, far.broken, far.closed_at) == (4000, None, "")
