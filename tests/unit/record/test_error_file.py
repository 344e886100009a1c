"""What ends a process, written down and read back; the decorator that does it."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import distdbg as dist
from distdbg.errors import first_cause
from distdbg.record.error_file import (
    because_of,
    copy_error_file,
    read_error_file,
    to_json,
    waits_for,
    write_error_file,
)

NOW = 1_795_310_000_500_000_000


@pytest.fixture
def error_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "error.json"
    monkeypatch.delenv("TORCHELASTIC_ERROR_FILE", raising=False)
    monkeypatch.setenv("DISTDBG_ERROR_FILE", str(path))
    return path


def caught(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as found:
        return found


# ---------------------------------------------------------------------------------------- the file


def test_the_shape_is_torchs() -> None:
    text = to_json(caught(ValueError("no data")), {"RANK": "3"}, pid=7, wall_ns=NOW)
    message = json.loads(text)["message"]
    assert message["message"] == "ValueError: no data"
    assert message["extraInfo"]["timestamp"] == "1795310000"
    assert message["extraInfo"]["py_callstack"].startswith("Traceback (most recent call last)")
    ours = json.loads(text)["distdbg"]
    assert (ours["rank"], ours["pid"], ours["wall_ns"], ours["type"]) == (3, 7, NOW, "ValueError")


def test_what_was_written_is_read(error_file: Path) -> None:
    error = dist.OpTimeout("barrier #3 waited", missing=[2], details=["a"], hint="b")
    assert write_error_file(caught(error))
    facts = read_error_file(error_file)
    assert facts is not None
    assert facts.first_line == "OpTimeout: barrier #3 waited"
    assert (facts.details, facts.hint, facts.waits_for) == (("a",), "b", (2,))
    assert facts.because_of == ()
    assert facts.pid == os.getpid()
    assert "Traceback" in facts.traceback
    assert list(error_file.parent.iterdir()) == [error_file]


def test_what_was_added_to_an_error_is_told_and_its_hint_apart(error_file: Path) -> None:
    error = ValueError("no data")
    error.add_note("of rank 2\nin step 4")
    error.add_note("hint: look at the loader")
    assert write_error_file(caught(error))
    facts = read_error_file(error_file)
    assert facts is not None
    assert (facts.first_line, facts.notes) == ("ValueError: no data", ("of rank 2", "in step 4"))
    assert facts.hint == "look at the loader"
    assert facts.details == ()


def test_the_first_error_of_a_process_stays(error_file: Path) -> None:
    assert write_error_file(ValueError("first"))
    assert not write_error_file(ValueError("second"))
    facts = read_error_file(error_file)
    assert facts is not None
    assert facts.text == "ValueError: first"


def test_what_a_child_left_in_the_file_of_its_parent_is_replaced(error_file: Path) -> None:
    error_file.write_text(to_json(ValueError("of the child"), {}, pid=1, wall_ns=NOW))
    assert write_error_file(ValueError("of the parent"))
    facts = read_error_file(error_file)
    assert facts is not None
    assert facts.text == "ValueError: of the parent"


def test_what_cannot_be_written_is_no_error(
    error_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_ERROR_FILE", str(error_file / "not" / "there"))
    assert not write_error_file(ValueError("x"))
    monkeypatch.delenv("DISTDBG_ERROR_FILE")
    assert not write_error_file(ValueError("x"))


def test_huge_texts_are_cut_in_the_middle(error_file: Path) -> None:
    assert write_error_file(ValueError("a" * 1_000_000 + "end"))
    assert error_file.stat().st_size < 400_000
    facts = read_error_file(error_file)
    assert facts is not None
    assert facts.text.endswith("end")


def test_torchs_files_are_read_with_the_time_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "error.json"
    extra = {"py_callstack": TORCH_TRACE, "timestamp": "1795310000"}
    path.write_text(json.dumps({"message": {"message": "RuntimeError: x", "extraInfo": extra}}))
    os.utime(path, ns=(NOW, NOW))
    facts = read_error_file(path)
    assert facts is not None
    assert (facts.text, facts.type, facts.wall_ns) == ("RuntimeError: x", "RuntimeError", NOW)
    assert facts.traceback == TORCH_TRACE
    path.write_text(json.dumps({"message": "a plain text", "timestamp": 3}))
    facts = read_error_file(path)
    assert facts is not None
    assert (facts.text, facts.type) == ("a plain text", "")


TORCH_TRACE = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nRuntimeError: x\n'


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff", b'{"message": 3}', b"[" * 100_000, b'{"message": {"message": []}}'],
)
def test_what_is_no_error_file_is_passed_over(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "error.json"
    path.write_bytes(content)
    assert read_error_file(path) is None


def test_a_named_pipe_in_place_of_the_file_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "error.json"
    os.mkfifo(path)
    assert read_error_file(path) is None


def test_an_error_that_cannot_say_what_it_is_leaves_its_traceback(error_file: Path) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert write_error_file(Mute())
    found = read_error_file(error_file)
    assert found is not None
    assert found.text == "Mute: <exception str() failed>"


def test_fields_of_other_types_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "error.json"
    ours = {"because_of": "x", "rank": "y", "pid": True, "hint": 3, "details": 4, "wall_ns": []}
    message = {"message": "m", "extraInfo": {"py_callstack": 5}}
    path.write_text(json.dumps({"message": message, "distdbg": ours}))
    facts = read_error_file(path)
    assert facts is not None
    assert (facts.because_of, facts.rank, facts.pid, facts.hint) == ((), None, None, None)


# ------------------------------------------------------------------------------------ consequences


def test_a_lost_peer_is_to_blame_also_behind_other_exceptions() -> None:
    lost = dist.PeerLost("gone", peer=2)
    assert because_of(lost) == (2,)
    assert because_of(caught(RuntimeError("training failed"), lost)) == (2,)
    assert because_of(dist.RankLeft("left", peer=5)) == (5,)
    assert because_of(dist.JobAborted("deadlock", ranks=[0, 3])) == (0, 3)
    assert because_of(dist.DebuggerQuit("quit", ranks=[1])) == (1,)
    assert because_of(ValueError("x")) == ()
    assert because_of(dist.MismatchError("x", ranks=[1])) == ()


def test_an_exception_raised_while_another_was_handled_comes_from_that() -> None:
    def fails_in_its_clean_up() -> None:
        try:
            raise dist.PeerLost("gone", peer=1)
        finally:
            raise KeyError("in the clean-up")

    with pytest.raises(KeyError) as handled:
        fails_in_its_clean_up()
    assert because_of(handled.value) == (1,)
    assert because_of(caught(handled.value, None)) == ()  # `from None`


def test_a_timeout_waits_for_ranks_and_blames_none() -> None:
    late = dist.OpTimeout("late", missing=[4, 5])
    assert waits_for(caught(RuntimeError("x"), late)) == (4, 5)
    assert because_of(late) == ()


# --------------------------------------------------------------------------------------- decorator


def test_the_decorator_writes_and_raises(error_file: Path) -> None:
    @dist.record
    def main(number: int, *, word: str) -> str:
        if number:
            raise ValueError(word)
        return word

    assert main(0, word="fine") == "fine"
    assert not error_file.exists()
    assert main.__name__ == "main"
    with pytest.raises(ValueError, match="no data"):
        main(1, word="no data")
    facts = read_error_file(error_file)
    assert facts is not None
    assert facts.text == "ValueError: no data"
    assert "raise ValueError(word)" in facts.traceback


def test_the_decorator_may_be_called_first(error_file: Path) -> None:
    @dist.record()
    def main() -> None:
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        main()
    assert error_file.exists()


def test_an_exit_with_0_becomes_a_return_and_others_stay(error_file: Path) -> None:
    assert dist.record(lambda: sys.exit(0))() is None
    with pytest.raises(SystemExit):
        dist.record(lambda: sys.exit(3))()
    assert not error_file.exists()
    with pytest.raises(SystemExit):
        dist.record(lambda: sys.exit("no data"))()
    facts = read_error_file(error_file)
    assert facts is not None
    assert facts.text == "SystemExit: no data"


def test_a_handler_of_ones_own_is_asked(error_file: Path) -> None:
    class Handler:
        def __init__(self) -> None:
            self.calls: list[Any] = []

        def initialize(self) -> None:
            self.calls.append("initialize")

        def record_exception(self, e: BaseException) -> None:
            self.calls.append(e)

        def dump_error_file(self, rootcause_error_file: str, error_code: int = 0) -> None:
            self.calls.append(rootcause_error_file)

    handler = Handler()

    @dist.record(error_handler=handler)
    def main() -> None:
        raise ValueError("x")

    with pytest.raises(ValueError, match="x") as caught_error:
        main()
    assert handler.calls == ["initialize", caught_error.value]
    assert not error_file.exists()


def test_a_nested_launcher_passes_on_what_its_child_wrote(error_file: Path, tmp_path: Path) -> None:
    child = tmp_path / "child.json"
    child.write_text(to_json(ValueError("of the child"), {"RANK": "1"}, pid=1, wall_ns=NOW))

    class ChildFailedError(Exception):  # as torch's
        def get_first_failure(self) -> tuple[int, Any]:
            class Failure:
                error_file = str(child)
                exitcode = -9

            return 1, Failure()

    @dist.record
    def main() -> None:
        raise ChildFailedError("trainer FAILED")

    with pytest.raises(ChildFailedError):
        main()
    facts = read_error_file(error_file)
    assert facts is not None
    assert (facts.text, facts.code, facts.rank) == ("ValueError: of the child", -9, 1)
    assert not copy_error_file(error_file, tmp_path / "none.json")


@pytest.mark.parametrize(
    "imports",
    [
        "import distdbg as dist; dist.record; import distdbg.record.reader",
        "import distdbg.record.reader; import distdbg as dist",
        "from distdbg import record; import distdbg as dist",
        "from distdbg.record import reader; import distdbg as dist",
    ],
)
def test_the_package_of_records_can_be_called_whatever_is_imported_first(imports: str) -> None:
    script = f"""
{imports}
import sys
assert "distdbg.native" not in sys.modules
assert dist.record(lambda: 3)() == 3
from distdbg import record
assert record is dist.record is sys.modules["distdbg.record"]
import distdbg.record.reader
assert distdbg.record.reader.RecordFile
assert distdbg.record.__name__ == "distdbg.record"
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_a_limit_of_the_process_is_told_where_memory_ran_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for limit, hint in (
        (3 << 28, "limited to 768.0 MiB (ulimit -v)"),
        (resource.RLIM_INFINITY, ""),
    ):
        monkeypatch.setattr(resource, "getrlimit", lambda which, limit=limit: (limit, -1))
        path = tmp_path / f"{limit}.json"
        assert write_error_file(MemoryError("no room"), path)
        found = read_error_file(path)
        assert found is not None
        assert hint in (found.hint or "")
        assert bool(found.hint) is bool(hint)


def count_down(number: int) -> int:
    return count_down(number - 1) if number else sum(count_down(n) for n in (0,))


def test_a_recursion_that_is_too_deep_is_told_with_who_began_it(tmp_path: Path) -> None:
    with pytest.raises(RecursionError) as found:
        count_down(10**6)
    assert write_error_file(found.value, tmp_path / "error.json")
    facts = read_error_file(tmp_path / "error.json")
    assert facts is not None
    assert facts.hint is not None
    depth, _, began = facts.hint.partition(" calls deep, first called at ")
    assert 100 < int(depth.removeprefix("count_down() was ").replace(",", "")) <= 1000
    assert re.match(
        r"test_error_file\.py:\d+ \(test_a_recursion_that_is_too_deep_is_told_with_who_began_it\): "
        r"either it never ends, or its data is deeper than the limit \([\d,]+\)$",
        began,
    )


def test_what_an_error_was_raised_from_is_told(tmp_path: Path) -> None:
    error = RuntimeError("the loader is gone")
    error.__cause__ = OSError("no such shard\nreally")
    assert write_error_file(error, tmp_path / "error.json")
    found = read_error_file(tmp_path / "error.json")
    assert found is not None
    assert (found.text, found.cause) == (
        "RuntimeError: the loader is gone",
        "OSError: no such shard",
    )
    cycle = ValueError("x")
    cycle.__cause__ = cycle
    assert first_cause(cycle) == ""
    cycle.__cause__ = OSError("\n  no room\n")
    cycle.__cause__.__cause__ = cycle
    assert first_cause(cycle) == "OSError: no room"


class CheckpointException(BaseException):
    """As torch's: all ranks of the group raise it."""

    def __init__(self, failures: dict[int, BaseException]) -> None:
        super().__init__(failures)

    def __str__(self) -> str:
        (failures,) = self.args
        text = f"CheckpointException ranks:{failures.keys()}\n"
        for rank, error in failures.items():
            text += f"Traceback (most recent call last): (RANK {rank})\n"
            text += f'  File "/job/save.py", line {rank}, in write\nOSError: {error}\n'
        return text


class _DistWrapper:
    """As torch's, which knows the rank within its group."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def all_reduce(self, error: BaseException) -> None:
        raise error


@pytest.mark.parametrize(
    ("rank", "text", "kind"),
    [
        (0, "CheckpointException: OSError: no room (RANK 1)", "CheckpointException"),
        (1, "OSError: no room (CheckpointException)", "OSError"),
        (2, "OSError: no quota (CheckpointException)", "OSError"),
    ],
)
def test_each_rank_of_a_failed_checkpoint_says_its_own_error(
    error_file: Path, rank: int, text: str, kind: str
) -> None:
    error = CheckpointException({1: OSError("no room"), 2: OSError("no quota")})
    with pytest.raises(CheckpointException) as raised:
        _DistWrapper(rank).all_reduce(error)
    assert write_error_file(raised.value)
    found = read_error_file(error_file)
    assert found is not None
    assert (found.text, found.type) == (text, kind)
    assert f"line {max(rank, 1)}, in write" in found.inner
    assert "test_error_file.py" in found.traceback


def test_an_error_of_a_worker_of_a_pool_has_the_place_in_the_worker(error_file: Path) -> None:
    class _RemoteTraceback(Exception):
        """As concurrent.futures and multiprocessing have it."""

    trace = 'Traceback (most recent call last):\n  File "/job/load.py", line 7, in read\nOSError: no shard'
    error = caught(OSError("no shard"), _RemoteTraceback(f'\n"""\n{trace}\n"""'))
    assert write_error_file(error)
    found = read_error_file(error_file)
    assert found is not None
    assert (found.text, found.cause) == ("OSError: no shard", "")
    assert found.inner == f"{trace}\n"


def test_an_error_that_quotes_a_log_has_its_own_text_type_and_place(error_file: Path) -> None:
    quoted = (
        'Traceback (most recent call last):\n  File "/job/conv.py", line 3, in cache\nKeyError: 1\n'
    )
    text = f"conversion failed for shard 9\nstderr:\n{quoted}no space left on /scratch"
    assert write_error_file(caught(ValueError(text)))
    found = read_error_file(error_file)
    assert found is not None
    assert (found.text, found.type, found.inner) == (f"ValueError: {text}", "ValueError", "")
    assert found.traceback.endswith("\nValueError: conversion failed for shard 9\n")
    assert "test_error_file.py" in found.traceback
    assert "conv.py" not in found.traceback
