"""Where ranks are, their stacks, what they did last, and who waits for whom."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
import render_examples as examples

from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.diagnose.session import Activity
from distdbg.record.format import Exit, Status
from distdbg.record.rank_state import RankState
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.render.stacks import fold_stacks, own_frames
from distdbg.render.story import story_of
from distdbg.render.svg import draw_wait_graph
from distdbg.render.waitgraph import MAX_NODES, make_wait_graph
from distdbg.render.where import place_of, where_text
from distdbg.render.words import fold_facts, iso_text, safe, seconds_text
from tests.support.session_builder import SessionBuilder


def test_a_rank_is_in_the_call_that_blocks_before_what_only_runs() -> None:
    build = SessionBuilder(world_size=1)
    build.op(0, "all_reduce", is_async=True, site="a.py:1 (f)")
    assert where_text(build.session, 0) == "in all_reduce #1 on group 'world' at a.py:1 (f)"
    build.op(0, "barrier", site="a.py:2 (f)")
    assert where_text(build.session, 0) == "in barrier #2 on group 'world' at a.py:2 (f)"


def test_a_rank_that_gave_up_says_so() -> None:
    build = SessionBuilder(world_size=2)
    build.op(0, "barrier", ended_s=5, status=Status.TIMEOUT)
    assert where_text(build.session, 0) == "gave up in barrier #1 on group 'world'"
    assert place_of(build.session, 1) is None
    assert where_text(build.session, 1) == ""


def test_equal_stacks_are_told_once_without_what_started_the_program() -> None:
    session, _ = examples.missing_rank(4096, 77)
    [many, one] = fold_stacks(session, session.ranks)
    assert (len(many.ranks), one.ranks) == (4095, (77,))
    outer = RecordedFrame("/usr/lib/python3.11/multiprocessing/process.py", 108, "run")
    inner = RecordedFrame("/usr/lib/python3.11/site-packages/lib/a.py", 1, "f")
    mine = RecordedFrame("/job/train.py", 3, "main")
    frames = (inner, outer, mine, outer, RecordedFrame("<string>", 1, "<module>"))
    assert own_frames(frames) == (mine,)  # nor the libraries that it has called
    assert own_frames((inner, outer)) == (inner,)
    assert own_frames((outer,)) == (outer,)


def test_what_an_agent_saw_comes_before_what_the_record_says() -> None:
    build = SessionBuilder(world_size=1)
    build.op(0, "barrier", ended_s=1, site="a.py:2 (f)")
    stack = (RecordedFrame("/job/data.py", 12, "load"),)
    build.session.ranks[0].activity = Activity(state=RankState.ASLEEP, since_ns=0, stack=stack)
    assert [(s.what, s.frames) for s in fold_stacks(build.session, [0])] == [("asleep", stack)]


def test_what_a_rank_does_on_its_way_out_is_no_part_of_its_story() -> None:
    build = SessionBuilder(world_size=1, now_s=50)
    build.op(0, "all_reduce", at_s=1, ended_s=2)
    build.exit(0, Exit.RAISED, at_s=31, what="ValueError: x")
    texts = {}
    for since_s in (30, 33):
        build.seen(0, RankState.HOLDS_GIL, since_s=since_s, why="one call that does not return")
        texts[since_s] = [step.text for step in story_of(build.session, 0)]
    assert [any("GIL" in text for text in texts[at]) for at in (30, 33)] == [True, False]


def test_a_rank_in_a_lock_of_its_own_is_not_asleep() -> None:
    build = SessionBuilder(world_size=1, now_s=50)
    build.op(0, "barrier", at_s=1, ended_s=2)
    build.seen(0, RankState.ASLEEP, since_s=3, why="blocked on a lock", site="a.py:9 (f)")
    assert story_of(build.session, 0)[-1].text == "waits for a lock"
    [stack] = fold_stacks(build.session, [0])
    assert stack.what.startswith("waits for a lock, after barrier #1")


def test_a_story_folds_what_is_alike_and_ends_with_the_end() -> None:
    build = SessionBuilder(world_size=1, now_s=50)
    for step in range(100):
        build.op(0, "all_reduce", at_s=step / 10, ended_s=step / 10 + 0.01, site="a.py:1 (f)")
    error = json.dumps({"type": "OpTimeout", "what": "it took too long\nreally"})
    build.op(0, "barrier", at_s=20, ended_s=30, status=Status.TIMEOUT, error=error)
    build.mark(0, "step", 100.0, at_s=15)
    build.exit(0, Exit.RAISED, at_s=31, what="OpTimeout: it took", where="a.py:9 (main)")
    build.end(0, at_s=32, cause="exited", exit_code=1)
    steps = story_of(build.session, 0)
    assert [(step.text, step.site, step.count) for step in steps] == [
        ("all_reduce #100 on group 'world' took 10 ms", "a.py:1 (f)", 100),
        ("mark step 100", "", 1),
        ("barrier #101 on group 'world' failed after 10 s: it took too long", "", 1),
        ("raised OpTimeout: it took", "a.py:9 (main)", 1),
        ("exited with code 1", "", 1),
    ]
    assert story_of(build.session, 5) == []


def test_ranks_that_wait_alike_are_one_node() -> None:
    graph = make_wait_graph(*examples.missing_rank(4096, 77))
    assert [(len(node.ranks), node.is_core, node.on) for node in graph.nodes] == [
        (1, True, ()),
        (4095, False, (0,)),
    ]


def test_a_deadlock_is_a_cycle_with_those_who_wait_for_it() -> None:
    graph = make_wait_graph(*examples.deadlock())
    assert [(node.ranks, node.is_core, node.on) for node in graph.nodes] == [
        ((0,), True, (1,)),
        ((1,), True, (0,)),
        ((2, 3), False, (0, 1)),
    ]


def test_a_graph_has_a_bound_and_says_what_is_not_there() -> None:
    build = SessionBuilder(world_size=100)
    for rank in range(100):
        build.op(rank, "recv", peer=(rank + 1) % 100)
    _, verdict = examples.healthy()
    graph = make_wait_graph(build.session, verdict)
    assert (len(graph.nodes), graph.left_out) == (MAX_NODES, 100 - MAX_NODES)


def test_facts_that_differ_in_their_rank_alone_are_one() -> None:
    assert fold_facts(["rank 1: a", "b", "rank 3: a", "rank 2 is", "rank 4 is"]) == [
        "ranks 1,3: a", "b", "rank 2 is", "rank 4 is"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (-5, "0 ns"),
        (33_600_000, "33.6 ms"),
        (1.25e9, "1.2 s"),
        (605e9, "10 min 5 s"),
        (3.1e13, "8 h 36 min"),
    ],
)
def test_times_are_told_as_people_do(ns: float, text: str) -> None:
    assert seconds_text(ns) == text


def test_a_time_that_no_calendar_has_is_no_text() -> None:
    assert iso_text(2**62) == "2116-02-20T23:53:38.427387Z"
    assert iso_text(10**30) == ""
    assert safe("a" * 500) == "a" * 195 + " ... " + "a" * 100


@pytest.mark.parametrize("count", [2, 3, 4, 5, 7, 16])
def test_no_box_of_a_cycle_lies_on_another(count: int) -> None:
    build = SessionBuilder(world_size=count + 1)
    for rank in range(count):
        build.op(rank, "recv", peer=(rank + 1) % count)
    build.op(count, "barrier")
    _, verdict = examples.healthy()
    root = Finding(
        kind=FindingKind.DEADLOCK, severity=Severity.ERROR, what="", ranks=tuple(range(count))
    )
    drawn = draw_wait_graph(
        make_wait_graph(build.session, replace(verdict, root=root, findings=(root,)))
    )
    boxes = [
        (float(x), float(y))
        for x, y in re.findall(r'<rect x="([-\d]+)" y="([-\d]+)" width="250"', drawn)
    ]
    assert len(boxes) == count + 1
    assert all(x >= 0 and y >= 0 for x, y in boxes)
    for i, (x, y) in enumerate(boxes):
        assert all(abs(x - u) > 250 or abs(y - v) > 56 for u, v in boxes[:i])
