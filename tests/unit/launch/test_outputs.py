"""Lines, places and tails of what ranks print; the ranks are this process."""

from __future__ import annotations

import json
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdbg.errors import ConfigError
from distdbg.launch.options import RunOptions
from distdbg.launch.output_streams import StdStreams
from distdbg.launch.outputs.choices import OutputChoices, StreamTarget
from distdbg.launch.outputs.folders import make_logs_folder, make_rank_folder
from distdbg.launch.outputs.kept import find_kept
from distdbg.launch.outputs.lines import MAX_LINE_NBYTES, LineCutter
from distdbg.launch.outputs.outputs import Outputs

ALL = (StdStreams.ALL,) * 4


def soon(seconds: float = 120.0) -> int:
    return time.monotonic_ns() + int(seconds * 1e9)


@contextmanager
def outputs_to_files(
    tmp_path: Path, choices: OutputChoices, logs: Path | None = None
) -> Iterator[tuple[Outputs, Path, Path]]:
    """Outputs whose two consoles are files."""
    out, err = tmp_path / "console.out", tmp_path / "console.err"
    out_fd = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    err_fd = os.open(err, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    logs = logs or make_logs_folder(tmp_path)
    outputs = Outputs(choices, logs, stdout_fd=out_fd, stderr_fd=err_fd)
    try:
        outputs.start()
        yield outputs, out, err
    finally:
        outputs.close()
        os.close(out_fd)
        os.close(err_fd)


def write(fd: int | None, data: bytes) -> None:
    assert fd is not None
    os.write(fd, data)
    os.close(fd)


# ---------------------------------------------------------------------------------------- lines


def test_each_line_begins_with_the_prefix() -> None:
    lines = LineCutter(b"[default0]:")
    assert lines.feed(b"one\ntwo\n\nthr") == b"[default0]:one\n[default0]:two\n[default0]:\n"
    assert lines.feed(b"ee\n") == b"[default0]:three\n"
    assert lines.finish() == b""


def test_a_last_line_without_end_gets_one() -> None:
    lines = LineCutter(b">")
    assert lines.feed(b"half") == b""
    assert lines.finish() == b">half\n"
    assert lines.finish() == b""


def test_a_progress_bar_is_shown_as_it_moves() -> None:
    lines = LineCutter(b">")
    assert lines.feed(b"10%\r20%\r") == b">10%\r"
    assert lines.feed(b"30%\r\nend\n") == b">20%\r>30%\r\n>end\n"
    assert lines.feed(b"x\r") == b""
    assert lines.finish() == b">x\r"


def test_only_lines_with_one_of_the_needles_come_out() -> None:
    lines = LineCutter(b">", [b"loss", b"\xff"])
    assert lines.feed(b"loss 1\nother\na \xff b\nlo") == b">loss 1\n>a \xff b\n"
    assert lines.finish() == b""


def test_a_line_beyond_all_size_goes_out_in_pieces_with_one_prefix() -> None:
    lines = LineCutter(b">")
    text = b"x" * (MAX_LINE_NBYTES + 1)
    assert lines.feed(text) == b">" + text
    assert lines.feed(b"end\nnext\n") == b"end\n>next\n"
    assert lines.feed(text) == b">" + text
    assert lines.finish() == b"\n"


@settings(deadline=None)  # a machine may be busy
@given(st.binary(max_size=60), st.data())
def test_any_bytes_come_out_the_same_however_they_are_cut(
    content: bytes, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(content)))
    lines, whole = LineCutter(b""), LineCutter(b">")
    came = lines.feed(content[:cut]) + lines.feed(content[cut:]) + lines.finish()
    assert came in (content, content + b"\n")
    at_once = whole.feed(content) + whole.finish()
    pieces = LineCutter(b">")
    assert pieces.feed(content[:cut]) + pieces.feed(content[cut:]) + pieces.finish() == at_once


# -------------------------------------------------------------------------------------- choices


def test_prefixes_are_those_of_torchrun() -> None:
    assert OutputChoices().prefix(0, 8) == "[default0]:"
    assert OutputChoices(role="trainer").prefix(3, 8) == "[trainer3]:"
    template = "[${role_name}-${rank}/${local_rank}|${nobody}]:"
    assert OutputChoices(prefix_template=template).prefix(1, 9) == "[default-9/1|${nobody}]:"


def test_the_command_line_decides() -> None:
    choices = OutputChoices.from_options(
        RunOptions(script="a.py", tee=ALL, local_ranks_filter=frozenset({2}), role="trainer")
    )
    assert choices.is_teed(2, StdStreams.OUT)
    assert not choices.is_teed(1, StdStreams.OUT)
    assert choices.prefix(2, 2) == "[trainer2]:"


def test_a_stream_that_is_neither_redirected_nor_teed_is_inherited() -> None:
    choices = OutputChoices(
        redirects=(StdStreams.OUT, StdStreams.NONE), tee=(StdStreams.NONE, StdStreams.ERR)
    )
    assert choices.place(0, StdStreams.OUT) is StreamTarget.FILE
    assert choices.place(0, StdStreams.ERR) is StreamTarget.INHERITED
    assert choices.place(1, StdStreams.ERR) is StreamTarget.FILE
    assert choices.place(7, StdStreams.ERR) is StreamTarget.INHERITED
    assert choices.is_teed(1, StdStreams.ERR)
    assert not choices.is_teed(0, StdStreams.OUT)


def test_ranks_outside_the_filter_do_not_reach_the_console_but_their_errors_are_kept() -> None:
    choices = OutputChoices(
        tee=(StdStreams.ALL, StdStreams.ALL, StdStreams.NONE), local_ranks=frozenset({1})
    )
    assert choices.is_teed(1, StdStreams.OUT)
    assert not choices.is_teed(0, StdStreams.OUT)
    assert choices.place(0, StdStreams.OUT) is StreamTarget.FILE
    assert choices.place(2, StdStreams.OUT) is StreamTarget.NOWHERE
    assert choices.place(2, StdStreams.ERR) is StreamTarget.FILE


# -------------------------------------------------------------------------------------- folders


def test_log_dir_gets_a_folder_of_its_own_per_launcher(tmp_path: Path) -> None:
    first = make_logs_folder(tmp_path, log_dir=tmp_path / "logs", run_id="a/b")
    second = make_logs_folder(tmp_path, log_dir=tmp_path / "logs", run_id="a/b")
    assert first is not None
    assert first != second
    assert first.parent == tmp_path / "logs"
    assert first.name.startswith("a-b_")
    assert make_logs_folder(tmp_path, log_dir=Path(os.devnull)) is None


def test_launchers_on_one_host_have_a_folder_each(tmp_path: Path) -> None:
    with ExitStack() as first, ExitStack() as second:
        one = make_logs_folder(tmp_path, host="a", held=first)
        assert one == tmp_path / "logs" / "a"
        (one / "attempt_0").mkdir()
        assert make_logs_folder(tmp_path, host="a", held=second) == tmp_path / "logs" / "a.2"
        assert (one / "attempt_0").is_dir()
        first.close()
        assert make_logs_folder(tmp_path, host="a", held=first) == one  # it was started again
        assert not (one / "attempt_0").exists()


@pytest.mark.parametrize("is_elsewhere", [True, False])
def test_the_output_of_all_launchers_of_a_job_is_found_and_none_of_the_job_before(
    tmp_path: Path, is_elsewhere: bool
) -> None:
    log_dir = tmp_path / "elsewhere" if is_elsewhere else None

    def run(count: int) -> int:
        with ExitStack() as held:
            for number in range(count):
                logs = make_logs_folder(tmp_path, log_dir=log_dir, host="a", held=held)
                assert logs is not None
                make_rank_folder(logs, 0, number)
                (logs / "attempt_0" / str(number) / "stdout.log").write_text("x")
        return len(find_kept(tmp_path))

    assert [run(count) for count in (2, 3, 1, 2)] == [2, 3, 1, 2]


def test_logs_of_a_former_run_go_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "logs" / "attempt_3" / "0").mkdir(parents=True)
    (tmp_path / "logs" / "mine").mkdir()
    assert make_logs_folder(tmp_path) == tmp_path / "logs"
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["mine"]


def test_a_log_dir_that_is_a_file_is_an_error_that_names_the_flag(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="file") as caught:
        make_logs_folder(tmp_path, log_dir=tmp_path / "file")
    assert "--log-dir" in str(caught.value)


# -------------------------------------------------------------------------------------- outputs


def test_what_is_neither_kept_nor_filtered_goes_to_the_console(tmp_path: Path) -> None:
    with outputs_to_files(tmp_path, OutputChoices()) as (outputs, _, err):
        stdout, stderr = outputs.open(0, 0, 0)
        assert stdout is None
        write(stderr, b"a line\nand one without end")
        assert outputs.drain(soon())
        assert err.read_bytes() == b"a line\nand one without end\n"
        assert outputs.error_file(0, 0) == tmp_path / "logs/attempt_0/0/error.json"
        assert outputs.log_file(0, 0, StdStreams.ERR) is None
        assert (tmp_path / "logs/attempt_0/0").is_dir()
        assert outputs.drain(soon())


def test_redirected_streams_are_in_files_and_not_on_the_console(tmp_path: Path) -> None:
    with outputs_to_files(tmp_path, OutputChoices(redirects=ALL)) as (outputs, out, err):
        stdout, stderr = outputs.open(1, 5, 2)
        write(stdout, b"to stdout\n")
        write(stderr, b"to stderr\n")
        assert outputs.drain(soon())
        assert (tmp_path / "logs/attempt_2/1/stdout.log").read_bytes() == b"to stdout\n"
        assert (tmp_path / "logs/attempt_2/1/stderr.log").read_bytes() == b"to stderr\n"
        assert out.read_bytes() == err.read_bytes() == b""


def test_teed_streams_are_in_files_and_on_their_consoles(tmp_path: Path) -> None:
    with outputs_to_files(tmp_path, OutputChoices(tee=ALL)) as (outputs, out, err):
        stdout, stderr = outputs.open(0, 4, 0)
        write(stdout, b"binary \x00\xff\xfe\nand a half")
        write(stderr, b"warning\n")
        assert outputs.drain(soon())
        assert out.read_bytes() == b"[default0]:binary \x00\xff\xfe\n[default0]:and a half\n"
        assert err.read_bytes() == b"[default0]:warning\n"
        kept = (tmp_path / "logs/attempt_0/0/stdout.log").read_bytes()
        assert kept == b"binary \x00\xff\xfe\nand a half"


def test_each_attempt_has_files_of_its_own_and_old_ones_are_not_followed(tmp_path: Path) -> None:
    with outputs_to_files(tmp_path, OutputChoices(tee=ALL)) as (outputs, out, _):
        for attempt in range(3):
            stdout, stderr = outputs.open(0, 0, attempt)
            write(stdout, b"attempt %d\n" % attempt)
            write(stderr, b"")
            assert outputs.drain(soon())
        assert out.read_text().splitlines() == [f"[default0]:attempt {n}" for n in range(3)]


def test_lines_with_a_filter_go_into_a_file_for_all_ranks(tmp_path: Path) -> None:
    choices = OutputChoices(tee=ALL, stdout_filters=("loss", "acc"), stderr_filters=("E:",))
    with outputs_to_files(tmp_path, choices) as (outputs, out, _):
        for rank in range(2):
            stdout, stderr = outputs.open(rank, rank, 0)
            write(stdout, b"loss 1\nnoise\nacc")
            write(stderr, b"I: x\nE: y\n")
        assert outputs.drain(soon())
        logs = tmp_path / "logs" / "attempt_0"
        kept = sorted((logs / "filtered_stdout.log").read_text().splitlines())
        assert kept == [
            "[default0]:acc", "[default0]:loss 1", "[default1]:acc", "[default1]:loss 1"
        ]  # fmt: skip
        kept = sorted((logs / "filtered_stderr.log").read_text().splitlines())
        assert kept == ["[default0]:E: y", "[default1]:E: y"]
        assert "noise" in out.read_text()


def test_without_a_log_folder_what_would_be_kept_goes_nowhere() -> None:
    outputs = Outputs(OutputChoices(tee=ALL), None)
    stdout, stderr = outputs.open(0, 0, 0)
    write(stdout, b"x")
    write(stderr, b"x")
    assert outputs.error_file(0, 0) is None
    outputs.close()


def test_lines_of_ranks_that_print_at_once_do_not_mix(tmp_path: Path) -> None:
    count = 5000

    def rank_prints(rank: int, fd: int | None) -> None:
        assert fd is not None
        text = b"".join(b"rank %d line %d %s\n" % (rank, n, b"x" * (n % 90)) for n in range(count))
        rng = random.Random(rank)
        while text:  # cut anywhere, as buffers do
            size = rng.randrange(1, 9000)
            os.write(fd, text[:size])
            text = text[size:]
        os.close(fd)

    reading, writing = os.pipe()
    came: list[bytes] = []

    def read_console() -> None:
        while data := os.read(reading, 1 << 16):
            came.append(data)

    reader = threading.Thread(target=read_console)
    reader.start()
    outputs = Outputs(
        OutputChoices(tee=(StdStreams.OUT,) * 4), make_logs_folder(tmp_path), stdout_fd=writing
    )
    outputs.start()
    fds = [outputs.open(rank, rank, 0) for rank in range(4)]
    ranks = [
        threading.Thread(target=rank_prints, args=(rank, stdout))
        for rank, (stdout, _) in enumerate(fds)
    ]
    for thread in ranks:
        thread.start()
    for thread in ranks:
        thread.join()
    for _, stderr in fds:
        write(stderr, b"")
    assert outputs.drain(soon())
    outputs.close()
    os.close(writing)
    reader.join()
    os.close(reading)
    lines = b"".join(came).splitlines()
    for rank in range(4):
        start = b"[default%d]:rank %d line " % (rank, rank)
        numbers = [int(line.split()[3]) for line in lines if line.startswith(start)]
        assert numbers == list(range(count))
    assert len(lines) == 4 * count


def test_tracebacks_of_ranks_that_fail_at_once_are_whole(tmp_path: Path) -> None:
    count = 200

    def rank_fails(rank: int, fd: int | None) -> None:
        assert fd is not None
        for number in range(count):
            for piece in (b"Traceback (most recent call last):\n", b"  File ", b"a.py\n"):
                os.write(fd, piece)  # as Python does
            os.write(fd, b"ValueError: %d\n" % number)
            os.write(fd, b"plain of %d\n" % rank)
        os.close(fd)

    with outputs_to_files(tmp_path, OutputChoices()) as (outputs, _, err):
        ranks = [
            threading.Thread(target=rank_fails, args=(rank, outputs.open(rank, rank, 0)[1]))
            for rank in range(3)
        ]
        for thread in ranks:
            thread.start()
        for thread in ranks:
            thread.join()
        assert outputs.drain(soon())
        text = err.read_bytes()
    for rank in range(3):
        start = b"[rank %d] " % rank
        for number in range(count):
            block = (
                b"Traceback (most recent call last):",
                b"  File a.py",
                b"ValueError: %d" % number,
            )
            assert b"".join(start + line + b"\n" for line in block) in text
        assert text.count(b"plain of %d\n" % rank) == count
    assert len(text.splitlines()) == 3 * count * 4


@pytest.mark.parametrize("make", [os.pipe, os.openpty], ids=["pipe", "terminal"])
def test_a_console_that_nobody_reads_holds_neither_ranks_nor_launcher(
    tmp_path: Path, make: Callable[[], tuple[int, int]]
) -> None:
    reading, writing = make()
    choices = OutputChoices(tee=ALL, stdout_filters=("line 19999",))
    outputs = Outputs(choices, make_logs_folder(tmp_path), stdout_fd=writing)
    outputs.start()
    stdout, stderr = outputs.open(0, 0, 0)
    text = b"".join(b"line %d\n" % n for n in range(20_000))
    write(stdout, text)
    write(stderr, b"")
    began = time.monotonic()
    assert not outputs.drain(soon(0.3))
    outputs.close()
    assert time.monotonic() - began < 30
    assert (tmp_path / "logs/attempt_0/0/stdout.log").read_bytes() == text
    filtered = (tmp_path / "logs/attempt_0/filtered_stdout.log").read_bytes()
    assert filtered == b"[default0]:line 19999\n"
    os.close(reading)
    os.close(writing)


def test_a_console_is_not_made_non_blocking_for_others(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    outputs = Outputs(OutputChoices(tee=ALL), make_logs_folder(tmp_path), stdout_fd=writing)
    assert os.get_blocking(writing)
    outputs.close()
    os.close(writing)
    assert os.read(reading, 1) == b""  # nobody else holds it open
    os.close(reading)


def test_what_a_rank_prints_is_shown_before_it_ends(tmp_path: Path) -> None:
    with outputs_to_files(tmp_path, OutputChoices(tee=ALL)) as (outputs, out, _):
        stdout, stderr = outputs.open(0, 0, 0)
        assert stdout is not None
        os.write(stdout, b"step 1\nstep")
        deadline = soon()
        while not out.read_bytes():
            assert time.monotonic_ns() < deadline
            time.sleep(0.01)  # the thread looks ten times a second
        assert out.read_bytes() == b"[default0]:step 1\n"
        write(stdout, b" 2")
        write(stderr, b"")
        assert outputs.drain(soon())
        assert out.read_bytes() == b"[default0]:step 1\n[default0]:step 2\n"


def test_a_console_whose_reader_left_ends_nothing(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    outputs = Outputs(OutputChoices(tee=ALL), make_logs_folder(tmp_path), stdout_fd=writing)
    outputs.start()
    stdout, stderr = outputs.open(0, 0, 0)
    write(stdout, b"line\n" * 1000)
    write(stderr, b"")
    assert outputs.drain(soon())
    outputs.close()
    os.close(writing)


def test_a_full_disk_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logs = make_logs_folder(tmp_path)
    assert logs is not None
    (logs / "attempt_0").mkdir()
    (logs / "attempt_0" / "filtered_stdout.log").symlink_to("/dev/full")
    choices = OutputChoices(tee=ALL, stdout_filters=("line",))
    with (
        caplog.at_level(logging.WARNING, "distdbg.launch"),
        outputs_to_files(tmp_path, choices, logs) as (outputs, out, _),
    ):
        for rank in range(2):
            stdout, stderr = outputs.open(rank, rank, 0)
            write(stdout, b"line\n" * 10)
            write(stderr, b"")
        assert outputs.drain(soon())
        assert out.read_bytes().count(b"\n") == 20
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert "No space left" in said[0]


def test_a_folder_that_cannot_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    logs = make_logs_folder(tmp_path)
    assert logs is not None
    (logs / "attempt_0").write_text(json.dumps("in the way"))
    outputs = Outputs(OutputChoices(tee=ALL), logs)
    with pytest.raises(ConfigError, match="attempt_0"):
        outputs.open(0, 0, 0)
    outputs.close()
