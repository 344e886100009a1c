"""What Enter opens beside the details that the tests of views open."""

import pytest
from textual.pilot import Pilot

from distdbg.errors import DistNetworkError
from distdbg.tui.app import TopApp
from distdbg.view.snapshot import OpDetail, OpKey
from tests.tui import example_job
from tests.tui.eyes import app_of, draw, narrow, press, see
from tests.tui.made_up import NOW, MadeUpFeed, drive, job, row

pytestmark = pytest.mark.tui


def test_an_op_shows_who_came_when_and_marks_what_differs() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "world")
        await press(pilot, "enter", "e")
        screen = await see(pilot, "5 of 8 ranks called it, missing ranks 3,6-7", "the last, rank 4,",
                           "float32[1024] on ranks 0-2,5, float32[1023] on rank 4")  # fmt: skip
        rows = {line.split()[0]: line for line in screen.splitlines()[3:] if line.split()}
        assert "first" in rows["0"]
        assert "+12.3 ms" in rows["4"]
        assert "float32[1023], sum" in rows["4"]
        assert "≠" in rows["4"]
        assert "≠" not in rows["5"]
        assert "missing" in rows["3"]
        assert "rank 0 called it at" in screen
        await press(pilot, *["down"] * 4)
        await see(pilot, "rank 4 called it at", "train.py:140 (main)")
        await press(pilot, "F")
        screen = await see(pilot, "missing", no=("first\n",))
        assert "+20.0 us" not in screen
        await press(pilot, "F", "enter")
        await see(pilot, "> rank 4")

    drive(TopApp(example_job.feed(), now=lambda: NOW, view="groups"), script, size=(100, 30))


def test_a_rank_shows_facts_groups_ops_and_stack_and_its_ops_can_be_opened() -> None:
    feed = example_job.feed()

    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "waiting")
        await press(pilot, "down", "enter")  # under the row of the cause
        screen = await see(
            pilot, "argv           train.py --lr 3e-4", "stack of the op", "last ops"
        )
        for text in ("waiting for 31 s", "cpu 50 %  memory 40.0 MiB", "n14, pid 4700",
                     "dp     #21  1 before the median", "not all ranks have called it",
                     "failed"):  # fmt: skip
            assert text in screen, text
        await narrow(pilot, "#42.*for")
        await press(pilot, "home", "down", "enter")
        await see(pilot, "rank 0 > all_reduce #42 on group 'world'", "5 of 8 ranks called it")
        await press(pilot, "escape", "escape", "home", *["down"] * 5, "enter")
        await see(pilot, "rank 0 > host n14", "ranks 0-3   cpu 200 %   memory 160.0 MiB")

    drive(TopApp(feed, now=lambda: NOW), script, size=(100, 40))


def test_a_host_whose_agent_is_silent_says_so() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "waiting")
        await press(pilot, "end", "enter")
        await see(pilot, "was killed by SIGKILL", "n15, pid 4707")
        await narrow(pilot, "n15")
        await press(pilot, "home", "enter")
        await see(pilot, "host n15", "its agent does not answer: this is old")

    drive(TopApp(example_job.feed(), now=lambda: NOW), script)


def test_details_of_what_is_gone_or_cannot_be_had_are_sentences() -> None:
    class Refuses(MadeUpFeed):
        def op(self, key: OpKey) -> OpDetail | None:
            if key.seq == 42:
                raise DistNetworkError("the agent of n15 does not answer", hint="later")
            return None

    feed = Refuses(example_job.snapshot())

    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "world")
        await press(pilot, "enter", "e")
        await see(pilot, "the agent of n15 does not answer")
        await press(pilot, "escape", "escape", "down", "enter", "e")
        await see(pilot, "this op is not known any more")
        await press(pilot, "r", "down", "enter")
        await see(pilot, "ranks > rank 0", "waiting for 31 s")
        feed.snapshot = job(row(5))
        await draw(pilot)
        await see(pilot, "nothing is known of rank 0")
        assert not app_of(pilot).troubles.path

    drive(TopApp(feed, now=lambda: NOW, view="groups"), script)


def test_an_op_in_flight_is_asked_for_again_until_it_has_ended() -> None:
    feed = example_job.feed()
    key = OpKey(group="world", seq=42)
    moment = [NOW]

    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "world")
        await press(pilot, "enter", "e")
        await see(pilot, "5 of 8 ranks called it")
        done = tuple(
            example_job.Arrival(rank=rank, has_come=True, issued=NOW - 31, ended=NOW, status="ok")
            for rank in range(8)
        )
        feed.ops[key] = OpDetail(name=example_job.OP, arrivals=done)
        moment[0] += 1.5
        await draw(pilot)
        await see(pilot, "8 of 8 ranks called it")
        del feed.ops[key]
        moment[0] += 1.5
        await draw(pilot)
        await see(pilot, "8 of 8 ranks called it", no=("not known any more",))

    drive(TopApp(feed, now=lambda: moment[0], view="groups"), script)


@pytest.mark.parametrize("keys", ["gow", "fs", "lb"])
@pytest.mark.slow
def test_views_and_details_are_drawn_on_a_very_small_terminal_without_colour(
    keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def script(pilot: Pilot[None]) -> None:
        for key in keys:
            await press(pilot, key, "enter", "end")
            assert not app_of(pilot).troubles.path, key

    app = TopApp(example_job.feed(), now=lambda: NOW, theme="textual-light")
    drive(app, script, size=(40, 10))
