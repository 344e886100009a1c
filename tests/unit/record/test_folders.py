from __future__ import annotations

import fcntl
import os
import stat
import threading
from pathlib import Path
from unittest.mock import patch

import pytest

from distdbg.errors import ConfigError
from distdbg.record import folders
from distdbg.record.folders import new_run_name, place_record, prune_runs, record_name
from tests.support.record_builder import RecordBuilder

SECOND = 10**9
NOON = 1_795_262_400 * SECOND
NO_LIMIT = {"DISTDBG_RUNS_NBYTES": str(1 << 40)}


def place(tempdir: Path, run: str = "run-a", rank: int = 0) -> Path:
    path, why = place_record(run, rank, NO_LIMIT, tempdir=str(tempdir))
    assert path is not None, why
    return path


def make(tempdir: Path, second: int = 0) -> Path:
    return place(tempdir, f"20261121-1200{second:02}-aaaaaa").parent


def refused(run_dir: Path | str | None, tempdir: Path | None = None) -> str:
    environ = NO_LIMIT | ({"DISTDBG_RUN_DIR": str(run_dir)} if run_dir else {})
    path, why = place_record("run-a", 0, environ, tempdir=str(tempdir))
    assert path is None
    return why


def build(folder: Path, rank: int, run: str, pid: int = 1) -> Path:
    path = folder / record_name(rank)
    path.write_bytes(RecordBuilder(rank=rank, run=run, pid=pid).to_bytes())
    return path


def fill(folder: Path, nbytes: int = 1 << 16, rank: int = 0) -> Path:
    record = folder / record_name(rank)
    record.write_bytes(b"x" * nbytes)
    return record


def hold(record: Path) -> int:
    fd = os.open(record, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def test_a_run_goes_into_a_private_folder_and_latest_points_to_it(tmp_path: Path) -> None:
    first, second = place(tmp_path, "run-a", 3), place(tmp_path, "run-b", 12)
    assert place(tmp_path, "run-b", 3) == second.parent / "rank00003.ddr"
    parent = tmp_path / f"distdbg-{os.getuid()}"
    assert first == parent / "run-a" / "rank00003.ddr"
    assert second == parent / "run-b" / "rank00012.ddr"
    assert stat.S_IMODE(parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(first.parent.stat().st_mode) == 0o700
    assert os.readlink(parent / "latest") == "run-b"
    assert sorted(os.listdir(parent)) == ["latest", "run-a", "run-b"]


def test_names_of_runs_sort_by_time_and_differ() -> None:
    assert new_run_name(NOON).startswith("20261121-120000-")
    assert new_run_name(NOON) != new_run_name(NOON) < new_run_name(NOON + SECOND)


def test_a_new_run_makes_room(tmp_path: Path) -> None:
    old = place(tmp_path, "run-a")
    old.write_bytes(bytes(1 << 20))
    place_record("run-b", 0, {"DISTDBG_RUNS_NBYTES": "100000"}, tempdir=str(tmp_path))
    assert not old.parent.exists()


def test_a_folder_that_is_open_to_others_is_closed_again(tmp_path: Path) -> None:
    parent = make(tmp_path).parent
    parent.chmod(0o777)
    make(tmp_path, 1)
    assert stat.S_IMODE(parent.stat().st_mode) == 0o700


def test_a_link_in_place_of_the_users_folder_is_refused(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    trap.mkdir()
    (tmp_path / f"distdbg-{os.getuid()}").symlink_to(trap)
    assert "is not a folder" in refused(None, tmp_path)
    assert list(trap.iterdir()) == []


def test_a_folder_that_another_user_has_put_there_is_refused(tmp_path: Path) -> None:
    other = os.getuid() + 1
    (tmp_path / f"distdbg-{other}").mkdir()
    with patch.object(folders.os, "getuid", return_value=other):
        assert "belongs to another user" in refused(None, tmp_path)


def test_agents_are_not_looked_for_where_another_user_may_have_put_them(tmp_path: Path) -> None:
    other = os.getuid() + 1
    (tmp_path / f"distdbg-{other}").mkdir()
    with (
        patch.object(folders.os, "getuid", return_value=other),
        pytest.raises(ConfigError, match=f"distdbg-{other}: belongs to another user") as raised,
    ):
        folders.agents_folder(str(tmp_path))
    assert "TMPDIR" in str(raised.value)


def test_without_a_folder_for_temporary_files_nothing_is_recorded_and_why_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    nowhere = FileNotFoundError(2, "No usable temporary directory found")
    with patch.object(folders.tempfile, "gettempdir", side_effect=nowhere):
        path, why = place_record("run-a", 0, NO_LIMIT)
        assert path is None
        assert why == f"{tmp_path}/none/distdbg-{os.getuid()}: No such file or directory"
        assert folders.list_runs() == []
        with pytest.raises(ConfigError, match="No such file or directory"):
            folders.agents_folder()
        given = NO_LIMIT | {"DISTDBG_RUN_DIR": str(tmp_path / "run")}
        assert place_record("run-a", 0, given)[0] == tmp_path / "run" / record_name(0)


def test_no_room_for_a_folder_is_said_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "Not a directory" in refused(None, tmp_path / "file")
    assert "Not a directory" in refused(tmp_path / "file" / "run")
    assert "File exists" in refused(tmp_path / "file")
    assert "No such file or directory" in refused("/proc/no-such-folder")
    with patch.object(folders.os, "access", return_value=False):
        assert "not writable" in refused(tmp_path)


def test_a_named_folder_loses_the_records_of_the_run_before(tmp_path: Path) -> None:
    named = tmp_path / "a" / "run"
    environ = {"DISTDBG_RUN_DIR": str(named)}
    assert place_record("run-a", 7, environ) == (named / "rank00007.ddr", "")
    old = build(named, 7, "run-a")
    fill(named, rank=8)
    ours = build(named, 1, "run-b")
    draft = fill(named, rank=2).rename(named / "rank00002.ddr.new.77")
    (named / "notes.txt").write_text("mine")
    assert place_record("run-b", 0, environ) == (named / "rank00000.ddr", "")
    assert not old.exists()
    # Another rank of this run may have been faster, and may be over already.
    assert sorted(path.name for path in named.iterdir()) == ["notes.txt", ours.name, draft.name]


def test_what_others_wrote_of_the_run_before_goes_with_its_records(tmp_path: Path) -> None:
    for name in ("verdict.json", "seen-n01.jsonl", "ends-n01.jsonl", "rank00007.stacks.txt"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "notes.txt").write_text("mine")
    assert place_record("run-b", 0, {"DISTDBG_RUN_DIR": str(tmp_path)})[0] is not None
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_starts_of_torchrun_that_may_be_repeated_have_a_folder_each(tmp_path: Path) -> None:
    environ = NO_LIMIT | {"DISTDBG_RUN_DIR": str(tmp_path), "TORCHELASTIC_MAX_RESTARTS": "2"}

    def start(count: int, run: str, rank: int = 0) -> str:
        path, why = place_record(run, rank, environ | {"TORCHELASTIC_RESTART_COUNT": str(count)})
        assert path is not None, why
        build(path.parent, rank, run)
        return str(path.relative_to(tmp_path))

    first = [start(0, "run-a", rank) for rank in (0, 1)]
    assert first == ["attempt_0/rank00000.ddr", "attempt_0/rank00001.ddr"]
    (tmp_path / "attempt_0" / "verdict.json").touch()
    assert start(1, "run-b") == "attempt_1/rank00000.ddr"
    assert [len(list(at.iterdir())) for at in folders.attempts(tmp_path)] == [3, 1]
    assert start(0, "run-c") == "attempt_0/rank00000.ddr"  # the next job
    assert [len(list(at.iterdir())) for at in folders.attempts(tmp_path)] == [1]
    environ["TORCHELASTIC_MAX_RESTARTS"] = "0"
    assert start(0, "run-d") == "rank00000.ddr"


@pytest.mark.parametrize("most", ["0", "2"])
def test_a_folder_that_a_launcher_holds_is_not_taken_by_starts_of_torchrun(
    tmp_path: Path, most: str
) -> None:
    environ = NO_LIMIT | {"DISTDBG_RUN_DIR": str(tmp_path)}
    _, held = folders.make_run_folder("run-a", environ)
    (tmp_path / "attempt_3").mkdir()
    try:
        restarts = {"TORCHELASTIC_MAX_RESTARTS": most, "TORCHELASTIC_RESTART_COUNT": "0"}
        path, why = place_record("run-b", 0, environ | restarts)
        assert path is None
        assert "is held by a launcher" in why
        assert (tmp_path / "attempt_3").is_dir()
    finally:
        os.close(held)


def test_a_rank_that_is_just_letting_go_of_its_record_is_waited_for(tmp_path: Path) -> None:
    fd = hold(build(tmp_path, 7, "run-b"))
    letting_go = threading.Timer(0.1, os.close, [fd])
    letting_go.start()
    try:
        place, why = place_record("run-a", 0, {"DISTDBG_RUN_DIR": str(tmp_path)})
    finally:
        letting_go.join()
    assert (place, why) == (tmp_path / "rank00000.ddr", "")


def test_a_named_folder_in_which_another_run_writes_is_refused(tmp_path: Path) -> None:
    record = build(tmp_path, 7, "run-b")
    fd = hold(record)
    try:
        assert "rank00007.ddr of a run that is still running" in refused(tmp_path)
        assert record.exists()
        build(tmp_path, 7, "run-a")
        assert place_record("run-a", 0, {"DISTDBG_RUN_DIR": str(tmp_path)})[0] is not None
        # This process has begun another run before.
        build(tmp_path, 7, "run-b", pid=os.getpid())
        assert place_record("run-a", 0, {"DISTDBG_RUN_DIR": str(tmp_path)})[0] is not None
    finally:
        os.close(fd)


def test_the_oldest_runs_are_removed_until_the_rest_fits(tmp_path: Path) -> None:
    runs = [make(tmp_path, i) for i in range(4)]
    for run in runs:
        fill(run)
    parent = runs[0].parent
    assert prune_runs(parent, 1 << 20, wall_ns=NOON) == []
    assert prune_runs(parent, 5 << 15, wall_ns=NOON) == [runs[0].name, runs[1].name]
    # The latest stays however small the room is.
    assert prune_runs(parent, 0, wall_ns=NOON) == [runs[2].name]
    assert [path.name for path in parent.iterdir() if path.name != "latest"] == [runs[3].name]


def test_runs_to_which_nothing_was_added_for_long_are_removed_though_there_is_room(
    tmp_path: Path,
) -> None:
    runs = [make(tmp_path, i) for i in range(3)]
    for run in runs:
        fill(run)
    parent, added_ns = runs[0].parent, runs[0].stat().st_mtime_ns
    in_a_week_ns = added_ns + 7 * 86_400 * SECOND
    assert prune_runs(parent, 1 << 20, wall_ns=in_a_week_ns, most_days=8) == []
    assert prune_runs(parent, 1 << 20, wall_ns=in_a_week_ns, most_days=0) == []
    # The latest stays.
    removed = prune_runs(parent, 1 << 20, wall_ns=in_a_week_ns, most_days=6)
    assert removed == [runs[0].name, runs[1].name]


def test_where_there_is_room_no_record_of_an_earlier_run_is_opened(tmp_path: Path) -> None:
    runs = [make(tmp_path, i) for i in range(3)]
    for run in runs:
        fill(run)
    long_after_ns = runs[0].stat().st_mtime_ns + 10_000 * SECOND
    with patch.object(folders.os, "open", side_effect=AssertionError):
        assert prune_runs(runs[0].parent, 1 << 20, wall_ns=long_after_ns) == []


def test_a_live_run_is_never_removed(tmp_path: Path) -> None:
    old, middle, _ = (make(tmp_path, i) for i in range(3))
    fill(old, rank=1)
    fds = [hold(fill(old)), hold(fill(middle).rename(middle / "rank00000.ddr.new.77"))]
    try:
        assert prune_runs(old.parent, 0, wall_ns=NOON) == []
    finally:
        for fd in fds:
            os.close(fd)
    assert prune_runs(old.parent, 0, wall_ns=NOON) == [old.name, middle.name]


def test_a_run_whose_ranks_are_starting_stays_for_an_hour(tmp_path: Path) -> None:
    starting, _ = make(tmp_path), make(tmp_path, 1)
    made_ns = starting.stat().st_mtime_ns
    assert prune_runs(starting.parent, 0, wall_ns=made_ns + 3_000 * SECOND) == []
    assert prune_runs(starting.parent, 0, wall_ns=made_ns + 4_000 * SECOND) == [starting.name]


def test_what_somebody_put_into_the_folder_stays(tmp_path: Path) -> None:
    run, _ = make(tmp_path), make(tmp_path, 1)
    fill(run)
    (run / "mine").mkdir()
    (run.parent / "file").write_text("mine")
    assert prune_runs(run.parent, 0, wall_ns=NOON) == []
    assert (run / "mine").exists()
    assert (run.parent / "file").exists()


def test_many_pruners_at_once_remove_each_run_and_fail_never(tmp_path: Path) -> None:
    runs = [make(tmp_path, i) for i in range(30)]
    for run in runs:
        for rank in range(4):
            fill(run, 100, rank)
    parent, errors = runs[0].parent, []
    barrier = threading.Barrier(4)

    def prune() -> None:
        barrier.wait(timeout=30)
        try:
            prune_runs(parent, 0, wall_ns=NOON)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=prune) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert errors == []
    prune_runs(parent, 0, wall_ns=NOON)
    assert sorted(path.name for path in parent.iterdir()) == [runs[-1].name, "latest"]


def test_pruning_nothing_is_no_error(tmp_path: Path) -> None:
    assert prune_runs(tmp_path / "nothing", 0, wall_ns=NOON) == []


def test_ranks_that_ask_at_once_do_not_take_each_other_for_a_writer(tmp_path: Path) -> None:
    record = fill(tmp_path)
    asking = os.open(record, os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)  # as is_live does for a moment
    assert not folders.is_live(record)
    os.close(asking)


@pytest.mark.parametrize("kind", ["nothing", "folder", "pipe"])
def test_only_a_locked_file_is_live(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "rank00000.ddr"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    assert not folders.is_live(path)


def test_the_starts_of_a_launcher_and_its_logs_go_with_their_run(tmp_path: Path) -> None:
    run, newest = make(tmp_path), make(tmp_path, 1)
    for number in (0, 1):
        at = folders.attempt_folder(run, number)
        at.mkdir()
        fill(at)
    (run / folders.LOGS / "attempt_0" / "0").mkdir(parents=True)
    assert prune_runs(run.parent, 0, wall_ns=NOON) == [run.name]
    assert not run.exists()
    assert newest.exists()


def test_attempts_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    assert folders.attempts(tmp_path) == [tmp_path]
    for number in (10, 2, 0):
        folders.attempt_folder(tmp_path, number).mkdir()
    (tmp_path / "attempt_x").mkdir()
    assert [path.name for path in folders.attempts(tmp_path)] == [
        "attempt_0",
        "attempt_2",
        "attempt_10",
    ]


def test_a_folder_that_a_launcher_holds_is_neither_removed_nor_taken(tmp_path: Path) -> None:
    folder, held = folders.make_run_folder("run-a", NO_LIMIT, tempdir=str(tmp_path))
    make(tmp_path, 1)
    long_ago = 1_000_000_000
    os.utime(folder, (long_ago, long_ago))
    assert prune_runs(folder.parent, 0, wall_ns=NOON) == []
    os.close(held)
    os.utime(folder, (long_ago, long_ago))
    assert prune_runs(folder.parent, 0, wall_ns=NOON) == ["run-a"]


def test_launchers_of_one_run_share_a_folder_and_those_of_another_are_refused(
    tmp_path: Path,
) -> None:
    environ = NO_LIMIT | {"DISTDBG_RUN_DIR": str(tmp_path / "run")}
    folder, first = folders.make_run_folder("run-a", environ)
    folders.attempt_folder(folder, 0).mkdir()
    _, second = folders.make_run_folder("run-a", environ)
    assert folders.attempt_folder(folder, 0).is_dir()
    with pytest.raises(FileExistsError, match="holds run run-a, which is still running"):
        folders.make_run_folder("run-b", environ)
    os.close(first)
    os.close(second)
    _, third = folders.make_run_folder("run-b", environ)
    assert not folders.attempt_folder(folder, 0).exists()
    os.close(third)


def test_ranks_without_a_launcher_take_a_folder_only_when_no_launcher_holds_it(
    tmp_path: Path,
) -> None:
    run_dir = tmp_path / "run"
    environ = NO_LIMIT | {"DISTDBG_RUN_DIR": str(run_dir)}
    folder, held = folders.make_run_folder("run-b", environ)
    at = folders.attempt_folder(folder, 0)
    at.mkdir()
    build(at, 0, "run-b")
    (folder / "ends-n01.jsonl").touch()
    assert "is held by a launcher" in refused(run_dir)
    os.close(held)
    path, why = place_record("run-a", 0, environ)
    assert (path, why) == (run_dir / "rank00000.ddr", "")
    assert folders.attempts(run_dir) == [run_dir]
    assert not (folder / "ends-n01.jsonl").exists()


@pytest.mark.parametrize("name", ["a/b", "..", ".agents", "latest", "x" * 65, "ä" * 33])
def test_a_name_that_is_no_folder_for_a_run_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"DISTDBG_RUN=.* expected the name of a folder"):
        folders.read_run_name({"DISTDBG_RUN": name})


def test_a_run_may_have_any_other_name() -> None:
    for name in ("night run", "ä💥", "0"):
        assert folders.read_run_name({"DISTDBG_RUN": name}) == name
    assert folders.read_run_name({}) != folders.read_run_name({})
