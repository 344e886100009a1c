"""Groups, and the detail of one."""

import pytest
from textual.pilot import Pilot

import distdbg as dist
from distdbg.diagnose.load.run_folder import load_run
from distdbg.record.entries import MarkEntry
from distdbg.record.known_marks import MESH
from distdbg.runtime.process.world import current
from distdbg.tui.app import TopApp
from distdbg.tui.replay_feed import ReplayFeed
from distdbg.view.feed import Topic
from distdbg.view.snapshot import FeedLink
from tests.support.store_ranks import run_store_ranks
from tests.tui import example_job
from tests.tui.eyes import app_of, draw, narrow, press, see
from tests.tui.made_up import NOW, MadeUpFeed, drive, job, row

pytestmark = pytest.mark.tui


def test_it_shows_members_spread_and_who_is_behind_and_enter_opens_one() -> None:
    feed = example_job.feed()

    async def script(pilot: Pilot[None]) -> None:
        screen = await see(pilot, "world", "dp")
        assert Topic.GROUPS in feed.wanted
        world = next(line for line in screen.splitlines() if line.strip().startswith("world"))
        assert world.split() == ["world", "8", "0-7", "#42", "2", "3,6-7", "5", "broken", "shm",
                                 "30", "min"]  # fmt: skip
        await press(pilot, "enter")
        screen = await see(pilot, "groups > group world", "8 ranks: 0-7", "#40 to #42, median #42")
        assert "destroyed the group" not in screen
        dead = next(line for line in screen.splitlines() if line.strip().startswith("7 "))
        assert "#40       2" in dead
        assert "broken: rank 7 died" in dead
        await press(pilot, "e")
        await see(pilot, "all_reduce #42 on group 'world'", "5 of 8 ranks called it")
        await press(pilot, "escape", "down", "down", "down", "enter")
        await see(pilot, "group world > rank 3", "dataloader.py:210")

    drive(TopApp(feed, now=lambda: NOW, view="groups"), script, size=(120, 30))


def test_faults_and_the_filter_leave_out_what_does_not_fit() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "world", "dp")
        await press(pilot, "F")
        await see(pilot, "world", no=("\ndp ",))
        await press(pilot, "F")
        await narrow(pilot, "^dp")
        await see(pilot, "dp", no=("\nworld ",))

    drive(TopApp(example_job.feed(), now=lambda: NOW, view="groups"), script)


def test_without_groups_it_says_so_and_a_group_that_is_gone_is_no_traceback() -> None:
    feed = MadeUpFeed(job(row(0)))

    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "no groups yet")
        feed.change(link=FeedLink.OVER)
        await draw(pilot)
        await see(pilot, "no data about the groups of this job")
        feed.snapshot = example_job.snapshot()
        await draw(pilot)
        await press(pilot, "enter")
        await see(pilot, "8 ranks: 0-7")
        feed.change(groups=())
        await draw(pilot)
        await see(pilot, "is not known any more")
        await press(pilot, "e")
        await see(pilot, "no collective was called on this group yet")
        assert not app_of(pilot).troubles.path

    drive(TopApp(feed, now=lambda: NOW, view="groups"), script)


def test_groups_of_a_mesh_are_shown_by_the_names_of_its_dimensions() -> None:
    def run(rank: int) -> str:
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        mesh["dp", "tp"]._flatten("both")
        for group in mesh.get_all_groups():
            dist.barrier(group=group)
        return str(current().run_folder)

    session = load_run(run_store_ranks(run, 4, backend="gloo")[0])
    for log in session.ranks.values():
        reported = [note.name for note in log.notes if isinstance(note, MarkEntry)]
        assert reported == [
            f"{MESH}dp (2) on group 'mesh_dp', tp (2) on group 'mesh_tp'",
            f"{MESH}both (4) on group 'world'",
        ]
    feed = ReplayFeed(session)

    async def script(pilot: Pilot[None]) -> None:
        screen = await see(pilot, "mesh_dp", "mesh_tp")
        rows = {tuple(line.split()[:3]) for line in screen.splitlines() if "mesh_" in line}
        assert rows == {
            ("mesh_dp", "2", "0,2"), ("mesh_dp", "2", "1,3"),
            ("mesh_tp", "2", "0-1"), ("mesh_tp", "2", "2-3"),
        }  # fmt: skip

    try:
        drive(TopApp(feed, now=lambda: NOW, view="groups"), script, size=(100, 30))
    finally:
        feed.close()
