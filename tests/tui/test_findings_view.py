"""Findings, and the detail of one."""

from dataclasses import replace

import pytest
from textual.pilot import Pilot

from distdbg.diagnose.finding import FindingKind, Severity
from distdbg.tui.app import TopApp
from tests.tui import example_job
from tests.tui.example_job import LEAK, MISSING, STRAGGLER, edge, finding, verdict
from tests.tui.eyes import draw, narrow, press, see
from tests.tui.made_up import NOW, MadeUpFeed, drive, job, row

pytestmark = pytest.mark.tui


def test_the_verdict_is_on_top_then_the_others_by_severity() -> None:
    async def script(pilot: Pilot[None]) -> None:
        screen = await see(pilot, "other findings", "called all_reduce #42 at train.py:88 (step)")
        body = screen.split("\n", 3)[3]
        assert body.strip().startswith("5 ranks wait in all_reduce #42 on group 'world' for rank 3")
        assert body.index("hint: distdbg dump") < body.index("warning") < body.index("note")
        assert "hint: call wait() on what isend returns" in body
        assert body.count("which never called it") == 1
        await narrow(pilot, "isend")
        await see(pilot, "3 works of rank 2", no=("rank 5 comes last",))

    drive(TopApp(example_job.feed(), now=lambda: NOW, view="findings"), script, size=(100, 30))


def test_enter_opens_the_finding_with_roles_evidence_and_edges() -> None:
    feed = example_job.feed()

    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "other findings")
        await press(pilot, "enter")
        screen = await see(pilot, "findings > missing rank", "who waits for whom")
        for text in ("root        rank 3", "victims     ranks 0-2,4-5", "bystanders  rank 6",
                     "waited_s", "31.2", "rank 4 waits in all_reduce #42"):  # fmt: skip
            assert text in screen, text
        feed.change(verdict=verdict(STRAGGLER, MISSING, root=1))
        await draw(pilot)
        await see(pilot, "findings > missing rank", no=("no longer found",))
        feed.change(verdict=verdict(STRAGGLER, root=None))
        await draw(pilot)
        await see(pilot, "no longer found; this is how it was", "waited_s")
        await narrow(pilot, "rank 4 waits")
        await press(pilot, "home", "down", "enter")
        await see(pilot, "missing rank > rank 4")

    drive(TopApp(feed, now=lambda: NOW, view="findings"), script, size=(120, 40))


@pytest.mark.slow
def test_what_follows_can_be_opened_and_so_can_the_op() -> None:
    late = finding(FindingKind.FAILED_OP, Severity.ERROR, "rank 1 gave up", ranks=(1,))
    root = replace(MISSING, follows=(late,))
    feed = example_job.feed()
    feed.change(verdict=verdict(root), lines=())

    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "then: rank 1 gave up")
        await press(pilot, "enter")
        await see(pilot, "consequences", "#42, on all ranks")
        await press(pilot, "end", "enter")
        await see(pilot, "missing rank > failed op", "rank 1 gave up", "the cause")
        await press(pilot, "escape", "home", *["down"] * 6, "enter")
        await see(pilot, "5 of 8 ranks called it")

    drive(TopApp(feed, now=lambda: NOW, view="findings"), script, size=(120, 40))


def test_edges_stand_for_evidence_where_there_is_none() -> None:
    edges = (edge(0, 1, text="recv from rank 1"), edge(1, 0, text="recv from rank 0"))
    ring = finding(
        FindingKind.DEADLOCK, Severity.ERROR, "deadlock of ranks 0,1", ranks=(0, 1), edges=edges
    )
    feed = MadeUpFeed(job(row(0), row(1), verdict=verdict(ring), lines=("deadlock of ranks 0,1",)))

    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "rank 0 waits in recv from rank 1 at train.py:88 (step)")

    drive(TopApp(feed, now=lambda: NOW, view="findings"), script)


def test_it_says_so_when_nothing_is_wrong_and_takes_what_it_does_not_know() -> None:
    feed = MadeUpFeed(job(row(0)))
    odd = finding(FindingKind.UNKNOWN, Severity.WARNING, "")

    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "no problem found so far")
        feed.change(verdict=verdict(root=None))
        await draw(pilot)
        await see(pilot, "nothing is wrong", no=("so far",))
        feed.change(verdict=verdict(odd, LEAK, root=None), abort="the user had enough")
        await draw(pilot)
        await see(pilot, "aborted: the user had enough", "3 works of rank 2")
        await press(pilot, "end", "up", "enter")
        await see(pilot, "findings > leaked work")

    drive(TopApp(feed, now=lambda: NOW, view="findings"), script, size=(80, 24))
