"""The control page of a host: made once, whole and private; paused, resumed, ended."""

from __future__ import annotations

import os
import struct
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdbg.control import layout
from distdbg.control.clock import FREE_CLOCK, JobClock
from distdbg.control.page import ControlPage, read_page
from distdbg.control.words import AbortWords, to_error
from distdbg.errors import JobAborted, RecordError

SECOND = 10**9
WORDS = AbortWords(what="rank 2 is dead", type="dead rank", ranks=(2,), by="the agent")


def poke(path: Path, name: str, value: int) -> None:
    field = layout.PAGE[name]
    with path.open("r+b") as file:
        file.seek(field.offset)
        file.write(struct.pack("<" + field.code, value))


def test_a_page_is_made_private_and_whole(tmp_path: Path) -> None:
    page = ControlPage.open(tmp_path, "n14", "run")
    assert page.path == tmp_path / "control-n14"
    assert page.path.stat().st_mode & 0o777 == 0o600
    assert page.path.stat().st_size == layout.PAGE_NBYTES
    assert os.listdir(tmp_path) == ["control-n14"]
    state = page.state()
    assert (state.run, state.is_paused, state.abort, state.rules) == ("run", False, None, b"")
    page.close()
    page.close()


def test_many_that_open_at_once_have_one_page(tmp_path: Path) -> None:
    pages: list[ControlPage] = []
    barrier = threading.Barrier(8)

    def come() -> None:
        barrier.wait()
        pages.append(ControlPage.open(tmp_path, "n14", "run"))

    threads = [threading.Thread(target=come) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pages[3].abort(WORDS)
    assert all(page.is_aborted for page in pages)
    assert len(pages) == 8
    for page in pages:
        page.close()


def test_the_clock_of_the_job_stands_in_a_pause_and_goes_on_from_there(tmp_path: Path) -> None:
    page = ControlPage.open(tmp_path, "n14")
    assert page.job_ns() <= time.monotonic_ns()
    now = time.monotonic_ns() - 100 * SECOND
    assert page.pause(now)
    assert not page.pause(now + SECOND)
    assert page.is_paused
    assert page.job_ns() == page.job_ns() == now
    assert page.state().paused_since_ns == now
    assert page.resume(now + 60 * SECOND)
    assert not page.resume()
    assert not page.is_paused
    earlier, job_ns, later = time.monotonic_ns(), page.job_ns(), time.monotonic_ns()
    assert earlier - 60 * SECOND <= job_ns <= later - 60 * SECOND
    assert page.state().paused_ns == 60 * SECOND
    # A second one adds to it.
    page.pause(now + 70 * SECOND)
    assert page.job_ns() == now + 10 * SECOND
    page.resume(now + 75 * SECOND)
    assert page.state().paused_ns == 65 * SECOND
    assert page.state().paused_since_ns == 0
    page.close()


@given(st.lists(st.integers(0, 10**12), max_size=20))
def test_job_time_never_goes_back_and_stands_in_every_pause(lengths: list[int]) -> None:
    # The word alone, as page.py and control.hpp keep it.
    clock, now, job = 0, 5 * SECOND, 5 * SECOND
    for index, length in enumerate(lengths):
        now += length
        if index % 2 == 0:  # it ran, and a pause begins
            job += length
            clock = ~(now - clock)
            assert ~clock == job
        else:
            clock = now - ~clock
            assert now - clock == job
        assert (clock < 0) == (index % 2 == 0)


def test_the_first_abort_stays(tmp_path: Path) -> None:
    page = ControlPage.open(tmp_path, "n14")
    other = ControlPage.open(tmp_path, "n14")
    assert page.abort_words() is None
    assert page.abort(WORDS)
    assert not other.abort(AbortWords(what="late"))
    assert other.abort_words() == WORDS
    assert read_page(tmp_path, "n14").abort == WORDS
    page.close()
    other.close()


def test_an_abort_whose_writer_died_is_written_again(tmp_path: Path) -> None:
    page = ControlPage.open(tmp_path, "n14")
    poke(page.path, "abort_state", layout.ABORT_WRITING)
    assert not page.is_aborted
    assert page.abort(WORDS)
    assert page.abort_words() == WORDS
    page.close()


def test_a_writer_that_is_stopped_does_not_keep_others_from_ending_the_job(tmp_path: Path) -> None:
    page, stopped = (ControlPage.open(tmp_path, "n14") for _ in range(2))
    with stopped._writing():
        assert page.abort(WORDS)
    page.close()
    stopped.close()


def test_rules_are_replaced_whole(tmp_path: Path) -> None:
    page = ControlPage.open(tmp_path, "n14")
    page.arm(b'[{"kind": "all_reduce"}]')
    assert page.state().rules == b'[{"kind": "all_reduce"}]'
    page.arm(b"")
    assert page.state().rules == b""
    with pytest.raises(RecordError, match="5000 bytes"):
        page.arm(b" " * 5000)
    page.beat(4711, 12)
    assert (page.state().agent_pid, page.state().agent_beat_ns) == (4711, 12)
    page.close()


def test_a_page_that_nobody_holds_is_of_a_job_that_is_over(tmp_path: Path) -> None:
    with_abort = ControlPage.open(tmp_path, "n14", "run")
    with_abort.abort(WORDS)
    beside = ControlPage.open(tmp_path, "n14", "run")
    assert beside.is_aborted
    with pytest.raises(RecordError, match="belongs to the run 'run'"):
        ControlPage.open(tmp_path, "n14", "next")
    # A rank has the folder: who still looks at the old page keeps that.
    rank = ControlPage.open(tmp_path, "n14", "next", owns_folder=True)
    other = ControlPage.open(tmp_path, "n14", "next", owns_folder=True)
    assert not rank.is_aborted
    assert beside.is_aborted
    rank.pause()
    assert other.is_paused
    for page in (with_abort, beside, rank, other):
        page.close()
    fresh = ControlPage.open(tmp_path, "n14", "next")
    assert not fresh.is_paused
    assert fresh.state().run == "next"
    fresh.close()


def test_a_page_made_without_the_name_of_the_run_gets_it_later(tmp_path: Path) -> None:
    launcher = ControlPage.open(tmp_path, "n14")
    launcher.abort(WORDS)
    rank = ControlPage.open(tmp_path, "n14", "run")
    assert rank.is_aborted
    assert launcher.state().run == "run"
    launcher.close()
    rank.close()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"junk", "damaged"),
        (bytes(layout.PAGE_NBYTES), "damaged"),
        (b"junk" * (layout.PAGE_NBYTES // 4), "damaged"),
    ],
)
def test_what_is_no_page_is_refused_and_left_as_it_is(
    tmp_path: Path, content: bytes, why: str
) -> None:
    path = tmp_path / "control-n14"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=why) as caught:
        ControlPage.open(tmp_path, "n14")
    assert caught.value.path == str(path)
    with pytest.raises(RecordError, match=why):
        read_page(tmp_path, "n14")
    assert path.read_bytes() == content


def test_links_folders_and_other_versions_are_refused(tmp_path: Path) -> None:
    (tmp_path / "control-link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "control-folder").mkdir()
    for host in ("link", "folder"):
        with pytest.raises(RecordError):
            ControlPage.open(tmp_path, host)
    holder = ControlPage.open(tmp_path, "n14")
    poke(holder.path, "version", 3)
    with pytest.raises(RecordError, match="version 3; this distdbg knows version 2"):
        ControlPage.open(tmp_path, "n14")
    holder.close()
    with pytest.raises(RecordError, match="No such file"):
        read_page(tmp_path, "n15")


def test_a_page_of_an_earlier_version_that_nobody_uses_is_made_anew(tmp_path: Path) -> None:
    ControlPage.open(tmp_path, "n14", "run").close()
    path = tmp_path / "control-n14"
    poke(path, "version", 1)
    os.truncate(path, 8192)
    page = ControlPage.open(tmp_path, "n14", "run")
    page.pause()
    assert read_page(tmp_path, "n14").is_paused
    page.close()


def test_torn_words_still_end_the_job(tmp_path: Path) -> None:
    page = ControlPage.open(tmp_path, "n14")
    clock = JobClock(page)
    page.abort(WORDS)
    for nbytes in (5, 0, 1 << 60):
        poke(page.path, "abort_nbytes", nbytes)
        with pytest.raises(JobAborted, match="the reason cannot be read"):
            clock.check()
        assert page.state().abort is not None
    page.close()


def test_a_clock_says_where_the_rank_was(tmp_path: Path) -> None:
    page = ControlPage.open(tmp_path, "n14")
    clock = JobClock(page)
    clock.check()
    assert not clock.is_free
    page.pause(time.monotonic_ns())
    assert clock.now_ns() == page.job_ns()
    assert clock.nap_s(0.0, 0.05) == 0.05
    page.resume()
    assert clock.nap_s(0.02, 0.05) == 0.02
    assert clock.nap_s(-1, 0.05) == 0.0
    page.abort(WORDS)
    with pytest.raises(JobAborted) as caught:
        clock.check(kind="all_reduce", seq=3, group="dp", op="all_reduce #3 on group 'dp'")
    error = caught.value
    assert str(error) == (
        "the job was aborted by the agent: rank 2 is dead\n"
        "  this rank was in all_reduce #3 on group 'dp'"
    )
    assert (error.verdict, error.by, error.ranks) == ("dead rank", "the agent", [2])
    assert (error.kind, error.seq, error.group) == ("all_reduce", 3, "dp")
    page.pause(time.monotonic_ns() - 10**9)
    page.resume()
    assert time.monotonic_ns() - clock.now_ns() >= 10**9
    clock.close()
    assert clock.is_free
    assert time.monotonic_ns() - clock.now_ns() >= 10**9
    clock.check()
    page.close()


def test_a_free_clock_is_the_monotonic_one() -> None:
    before = time.monotonic_ns()
    assert before <= FREE_CLOCK.now_ns() <= time.monotonic_ns()
    assert not FREE_CLOCK.is_paused
    FREE_CLOCK.check()


@given(
    st.builds(
        AbortWords,
        what=st.text(max_size=2000),
        type=st.text(max_size=80),
        ranks=st.lists(st.integers(0, 10**6), max_size=200),
        details=st.lists(st.text(max_size=600), max_size=40),
        hint=st.text(max_size=2000),
        by=st.text(max_size=300),
    )
)
def test_any_words_fit_the_page_in_ascii(words: AbortWords) -> None:
    text = words.to_json()
    assert len(text) <= layout.MAX_ABORT_NBYTES
    assert all(0x20 <= byte < 0x7F for byte in text)
    again = AbortWords.from_json(text)
    assert list(again.ranks) == list(words.ranks)[:64]
    assert again.to_json() == AbortWords.from_json(again.to_json()).to_json()


@given(st.binary(max_size=200) | st.sampled_from([b"[]", b"3", b'{"ranks": 3, "details": {}}']))
def test_no_bytes_are_too_odd_to_be_an_abort(text: bytes) -> None:
    assert to_error(text).what.startswith("the job was aborted")
