"""Whole trees on a clock that is only a number: what the root knows, how late, and what it costs."""

from __future__ import annotations

import os
import random

import pytest

from benchmarks.agent_tree import (
    LOCAL_RANKS,
    MS,
    S,
    Simulation,
    lock_step,
    make_tree,
    measure,
    worst_case,
)
from distdbg.follow.status import RankStatus
from distdbg.hosts.job_view import JobView, make_view
from distdbg.hosts.messages import BadMessage, pack_message
from distdbg.hosts.node import MAX_NBYTES_S
from distdbg.hosts.orders import Order
from distdbg.hosts.parent_choice import ancestors
from distdbg.record.rank_state import RankState

AGENTS = int(os.environ.get("STRESS_AGENTS", "512"))


def statuses(node: int, state: RankState = RankState.RUNNING, **words: object) -> list[RankStatus]:
    ranks = range(node * LOCAL_RANKS, (node + 1) * LOCAL_RANKS)
    return [
        RankStatus(rank=rank, host=f"host{node}", pid=100 + rank, state=state, **words)  # type: ignore[arg-type]
        for rank in ranks
    ]


def report(simulation: Simulation, node: int, rows: list[RankStatus]) -> None:
    simulation.nodes[node].report(rows, simulation.local_ns(node))
    simulation.wake(node)


def report_all(simulation: Simulation) -> None:
    for node in range(len(simulation.nodes)):
        report(simulation, node, statuses(node))


def view(simulation: Simulation, node: int = 0) -> JobView:
    rows = simulation.nodes[node].rows
    return make_view(rows.hosts, rows.ranks, simulation.local_ns(node))


def carry_out(simulation: Simulation, *, without: tuple[int, ...] = ()) -> dict[int, list[str]]:
    """What each host was ordered; all of it is acknowledged."""
    done = {}
    for number, node in enumerate(simulation.nodes):
        if number in simulation.dead or number in without:
            continue
        orders: list[Order] = node.orders()
        done[number] = [order.do for order in orders]
        for order in orders:
            node.acknowledge(order, simulation.local_ns(number))
        simulation.wake(number)
    return done


@pytest.mark.parametrize("load", [lock_step, worst_case])
def test_the_root_of_64_ranks_is_never_half_a_second_late(load) -> None:
    found = measure(8, load, seconds=2, warmup_s=1)
    assert found.worst_late_s < 0.3
    assert found.most_nbytes_s < 100_000


def test_64_hosts_are_no_later() -> None:
    found = measure(64, worst_case, seconds=0.5, warmup_s=1)
    assert found.worst_late_s < 0.4
    assert found.most_nbytes_s < 200_000


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_root_of_many_agents_hears_less_than_a_megabyte_per_second() -> None:
    """With 4,096 agents in `make stress`; with fewer the tree has the same levels but the last."""
    found = measure(AGENTS, worst_case, seconds=0.25, warmup_s=0.75)
    assert found.most_nbytes_s < 1_000_000
    assert found.root_nbytes_s < 500_000
    assert found.worst_late_s < 2


def test_rows_arrive_as_they_were_and_ages_go_on() -> None:
    simulation = make_tree(20)
    report_all(simulation)
    simulation.run(S)
    row = RankStatus(
        rank=19 * LOCAL_RANKS, host="host19", pid=7, state=RankState.HOLDS_GIL, attempt=2,
        state_age_s=12.0, progress_age_s=13.5, last_number=1042, seqs=(("world", 3), ("dp", 1042)),
        op="all_reduce #1042 on group 'dp'", site="train.py:88 (step)", why="in `re.match`",
        cpu_s=61.5, rss_nbytes=512 << 20,
    )  # fmt: skip
    report(simulation, 19, [row])
    simulation.run(S + 100 * MS)
    shown = {one.rank: one for one in view(simulation).ranks}[row.rank]
    assert shown.state_age_s == pytest.approx(12.1, abs=0.11)
    assert shown.progress_age_s == pytest.approx(13.6, abs=0.11)
    for name in ("host", "pid", "state", "attempt", "last_number", "seqs", "op", "site", "why"):
        assert getattr(shown, name) == getattr(row, name), name
    assert (shown.cpu_s, shown.rss_nbytes) == (row.cpu_s, row.rss_nbytes)
    simulation.run(31 * S)
    shown = {one.rank: one for one in view(simulation).ranks}[row.rank]
    assert shown.state_age_s == pytest.approx(42.0, abs=0.21)
    assert len(view(simulation).ranks) == 20 * LOCAL_RANKS


def test_a_job_that_stands_still_costs_next_to_nothing() -> None:
    simulation = make_tree(64)
    for second in range(20):
        for node in range(64):
            report(simulation, node, statuses(node, RankState.WAITING, state_age_s=float(second)))
        simulation.run((second + 1) * S)
        if second == 9:
            before = simulation.received[0]
    assert (simulation.received[0] - before) / 10 < 16 * 100  # 16 pings a second, and their like


def test_a_death_four_levels_down_is_known_at_once() -> None:
    simulation = make_tree(400)
    report_all(simulation)
    simulation.run(2 * S)
    for node in range(400):  # others keep the links busy
        report(simulation, node, statuses(node, op=f"all_reduce #{node} on group 'dp'"))
    report(simulation, 399, statuses(399, RankState.DEAD, why="was killed by SIGSEGV"))
    simulation.run(2 * S + 60 * MS)
    dead = [row for row in view(simulation).ranks if row.state == RankState.DEAD]
    assert [row.rank for row in dead] == list(range(399 * LOCAL_RANKS, 400 * LOCAL_RANKS))
    assert {row.why for row in dead} == {"was killed by SIGSEGV"}


def test_when_all_die_at_once_the_news_stay_within_bounds() -> None:
    simulation = make_tree(300)
    report_all(simulation)
    simulation.run(2 * S)
    before = simulation.received[0]
    for node in range(300):
        why = "was killed by SIGKILL from pid " + str(node)
        report(simulation, node, statuses(node, RankState.DEAD, why=why))
    simulation.run(3 * S)
    assert simulation.received[0] - before < 500_000
    assert all(row.state == RankState.DEAD for row in view(simulation).ranks)


@pytest.mark.slow
def test_words_that_nothing_compresses_stay_within_the_budget() -> None:
    simulation = make_tree(120)
    chance = random.Random(7)
    marks = []
    for look in range(30):
        for node in range(120):
            why = chance.randbytes(90).hex()
            report(simulation, node, statuses(node, why=why, op=f"broadcast #{look}"))
        simulation.run(look * 100 * MS)
        marks.append(simulation.received.get(0, 0))
    busiest = max(later - before for before, later in zip(marks, marks[10:], strict=False))
    assert busiest < 1.3 * MAX_NBYTES_S


def test_a_dead_host_is_lost_with_its_age_and_its_children_are_not() -> None:
    simulation = make_tree(40)
    report_all(simulation)
    simulation.run(S)
    simulation.kill(1)
    below = [node for node in range(40) if ancestors(node)[:1] == (1,)]
    for node in below:
        simulation.connect(node, 0)
    simulation.run(3 * S)
    seen = view(simulation)
    assert [host.node for host in seen.lost] == [1]
    assert seen.lost[0].since_s == pytest.approx(2.0, abs=0.1)
    assert seen.lost[0].ranks == tuple(range(8, 16))
    assert len(seen.ranks) == 40 * LOCAL_RANKS
    report(simulation, below[0], statuses(below[0], RankState.STOPPED))
    simulation.run(3 * S + 200 * MS)
    stopped = [row for row in view(simulation).ranks if row.state == RankState.STOPPED]
    assert {row.host for row in stopped} == {f"host{below[0]}"}


def test_a_whole_subtree_that_is_lost_is_told_and_found_again() -> None:
    simulation = make_tree(40)
    report_all(simulation)
    simulation.run(S)
    simulation.cut(1, 0)
    simulation.run(2 * S)
    lost = {host.node for host in view(simulation).lost}
    assert lost == {1, *(node for node in range(40) if ancestors(node)[:1] == (1,))}
    simulation.connect(1, 0)
    simulation.run(3 * S)
    assert not view(simulation).lost


def test_a_node_that_moved_is_not_lost_when_its_former_parent_notices() -> None:
    simulation = make_tree(40)
    report_all(simulation)
    simulation.run(S)
    simulation.nodes[20].detach(1, S)  # 1 does not know yet
    simulation.connect(20, 0)
    simulation.run(2 * S)
    simulation.nodes[1].detach(20, 2 * S)
    simulation.wake(1)
    report(simulation, 20, statuses(20, RankState.BUSY))
    simulation.run(3 * S)
    assert not view(simulation).lost
    loops = [row for row in view(simulation).ranks if row.state == RankState.BUSY]
    assert len(loops) == LOCAL_RANKS


@pytest.mark.parametrize("seed", range(6))
def test_whatever_becomes_of_the_links_the_root_knows_the_truth_in_the_end(seed: int) -> None:
    chance = random.Random(seed)
    simulation = make_tree(30, fan_in=3)
    simulation.latency_ns = lambda sender, receiver: chance.randrange(1, 80) * MS
    states = dict.fromkeys(range(30), RankState.RUNNING)
    report_all(simulation)
    for step in range(80):
        simulation.run(step * 50 * MS)
        node = chance.randrange(30)
        former = simulation.nodes[node].parent
        if chance.random() < 0.5:
            states[node] = chance.choice(list(RankState))
            report(simulation, node, statuses(node, states[node]))
        elif node and former is not None:
            # Either end may notice first, the other when it is told by the new link, or later.
            simulation.nodes[node].detach(former, simulation.now_ns)
            simulation.drop_messages(node, former)
            if chance.random() < 0.5:
                simulation.nodes[former].detach(node, simulation.now_ns)
        elif node:
            to = chance.choice(ancestors(node, 3))
            if node in simulation.nodes[to].rows.links:
                simulation.nodes[to].detach(node, simulation.now_ns)
            simulation.connect(node, to)
    for node in range(1, 30):
        if simulation.nodes[node].parent is None:
            simulation.connect(node, ancestors(node, 3)[-1])
    for node in range(30):
        for link in list(simulation.nodes[node].rows.links):
            if link >= 0 and simulation.nodes[link].parent != node:
                simulation.nodes[node].detach(link, simulation.now_ns)
                simulation.wake(node)
    simulation.run(simulation.now_ns + 10 * S)
    seen = view(simulation)
    assert not seen.lost
    assert {row.rank: row.state for row in seen.ranks} == {
        rank: states[rank // LOCAL_RANKS] for rank in range(30 * LOCAL_RANKS)
    }


def test_an_agent_that_leaves_is_not_lost() -> None:
    simulation = make_tree(3)
    report_all(simulation)
    simulation.run(S)
    report(simulation, 2, statuses(2, RankState.ENDED))
    simulation.run(S)  # something has just been sent
    simulation.nodes[2].leave(S)
    simulation.wake(2)
    simulation.run(S + 50 * MS)
    simulation.cut(2, 0)
    simulation.run(2 * S)
    assert [(host.has_left, host.is_lost) for host in view(simulation).hosts] == [
        (False, False),
        (False, False),
        (True, False),
    ]


def test_a_pause_reaches_every_host_and_who_ordered_it_knows() -> None:
    simulation = make_tree(300)
    report_all(simulation)
    simulation.run(S)
    ticket = simulation.nodes[299].order("pause", {"by": "somebody"}, S)
    simulation.wake(299)
    assert simulation.nodes[299].acknowledged(ticket) is None
    simulation.run(S + 20 * MS)
    assert carry_out(simulation) == {node: ["pause"] for node in range(300)}
    simulation.run(2 * S)
    assert simulation.nodes[0].acknowledged(ticket) == (300, 300)
    assert simulation.nodes[299].acknowledged(ticket) == (300, 300)
    assert carry_out(simulation) == {node: [] for node in range(300)}


def test_a_resume_works_when_an_agent_was_lost_in_the_pause() -> None:
    simulation = make_tree(40)
    report_all(simulation)
    simulation.run(S)
    simulation.nodes[0].order("pause", {}, S)
    simulation.wake(0)
    simulation.run(2 * S)
    carry_out(simulation)
    simulation.kill(1)
    ticket = simulation.nodes[0].order("resume", {}, 2 * S)
    simulation.wake(0)
    simulation.run(3 * S)
    for node in range(40):
        if ancestors(node)[:1] == (1,):
            simulation.connect(node, 0)
    simulation.run(4 * S)
    assert all(done == ["resume"] for done in carry_out(simulation).values())
    simulation.run(5 * S)
    assert simulation.nodes[0].acknowledged(ticket) == (39, 39)


def test_who_comes_late_gets_the_orders_that_still_hold() -> None:
    simulation = make_tree(2)
    simulation.cut(1, 0)
    root = simulation.nodes[0]
    for do in ("pause", "resume", "abort", "arm", "pause", "disarm", "abort"):
        root.order(do, {"first": root.seen}, 0)  # type: ignore[arg-type]
    simulation.connect(1, 0)
    simulation.run(S)
    orders = simulation.nodes[1].orders()
    assert [(order.do, order.number) for order in orders] == [
        ("abort", 3),
        ("pause", 5),
        ("disarm", 6),
    ]


def test_an_order_without_a_way_up_is_sent_when_there_is_one() -> None:
    simulation = make_tree(2)
    simulation.cut(1, 0)
    ticket = simulation.nodes[1].order("abort", {"what": "enough"}, 0)
    simulation.run(3 * S)
    simulation.connect(1, 0)
    simulation.run(6 * S)
    assert simulation.nodes[1].acknowledged(ticket) == (0, 2)
    orders = simulation.nodes[0].orders()
    assert [(order.do, order.words) for order in orders] == [("abort", {"what": "enough"})]
    with pytest.raises(ValueError, match="at most"):
        simulation.nodes[0].order("arm", {"rules": "x" * 100_000}, 0)


def test_an_order_is_done_here_at_least_when_the_root_does_not_answer() -> None:
    simulation = make_tree(2)
    simulation.cut(1, 0)
    node = simulation.nodes[1]
    node.order("abort", {"what": "enough"}, 0)
    simulation.wake(1)
    simulation.run(S)
    assert node.orders() == []
    simulation.run(3 * S)
    assert [(order.do, order.number) for order in node.orders()] == [("abort", 0)]
    simulation.run(9 * S)
    assert node.orders() == []
    simulation.connect(1, 0)
    simulation.run(10 * S)
    assert [order.number for order in node.orders()] == [1]


def test_the_clocks_of_all_hosts_are_known_within_their_error() -> None:
    chance = random.Random(3)
    skew_ns = [chance.randrange(-(10**12), 10**12) for _ in range(60)]
    simulation = make_tree(60, skew_ns=skew_ns)
    # The way up is three times as slow as the way down, and both jitter.
    simulation.latency_ns = lambda sender, receiver: (
        (300_000 if sender > receiver else 100_000) + chance.randrange(200_000)
    )
    assert simulation.nodes[59].offset(skew_ns[59]) is None
    simulation.run(5 * S)
    for node in range(60):
        offset = simulation.nodes[node].offset(simulation.local_ns(node))
        assert offset is not None
        assert abs(offset.offset_ns - (skew_ns[0] - skew_ns[node])) <= offset.error_ns
        assert offset.error_ns < MS * (1 + len(ancestors(node)))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"x{}",
        b"j[]",
        b"j{",
        b"z123",
        b"j" + b"[" * 100_000,
        pack_message({"ranks": [[0, 1], [], []]}),
        pack_message({"hosts": 5}),
        pack_message({"ping": ["now"]}),
        pack_message({"ping": [1 << 70]}),
        pack_message({"ask": {"do": "explode", "ticket": "1", "words": {}, "number": 0}}),
        pack_message({"seen": None}),
        pack_message({"ranks": "x" * (9 << 20)}),
    ],
)
def test_a_child_that_says_what_no_agent_says_is_refused(message: bytes) -> None:
    simulation = make_tree(2)
    with pytest.raises(BadMessage):
        simulation.nodes[0].receive(1, message, 0)


@pytest.mark.parametrize(
    "words",
    [
        {"pong": [1, 2, 3]},
        {"order": {}},
        {"counts": [1]},
        {"counts": [1, [[1]]]},
        {"pace": [1.5, 1, 1]},
    ],
)
def test_a_parent_that_says_what_no_agent_says_is_refused(words: dict[str, object]) -> None:
    simulation = make_tree(2)
    with pytest.raises(BadMessage):
        simulation.nodes[1].receive(0, pack_message(words), 0)


def test_words_of_a_later_version_are_passed_over() -> None:
    simulation = make_tree(2)
    simulation.nodes[0].receive(1, pack_message({"later": 1}), 0)
    simulation.nodes[1].receive(0, pack_message({"later": 1}), 0)
