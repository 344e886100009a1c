"""A FileStore's file: shared, removed by the last, repaired after a kill, started afresh when stale."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from distdbg.errors import DistStoreError, UsageError
from distdbg.runtime.rendezvous.process import ProcessIdentity, identify_self
from distdbg.runtime.store import FileStore
from distdbg.runtime.store.file_log import HEADER, LogEntryKind, StoreChange, encode_record
from distdbg.runtime.store.log_file import to_entry


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def run(program: str, path: str) -> subprocess.Popen[str]:
    text = (
        f"import os, sys\nfrom distdbg.runtime.store import FileStore\npath = {path!r}\n{program}"
    )
    return subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_two_stores_of_one_process_share_the_file(path: str) -> None:
    one, two = FileStore(path, 2), FileStore(path, 2)
    one.set("key", "1")
    assert two.get("key") == b"1"
    assert two.path == path
    assert two.list_keys() == ["key"]
    assert os.stat(path).st_mode & 0o777 == 0o600
    one.close()
    assert os.path.exists(path)
    two.close()
    two.close()
    assert not os.path.exists(path)
    with pytest.raises(DistStoreError, match="closed"):
        two.get("key")


def test_a_rank_that_leaves_before_the_others_come_leaves_its_keys(path: str) -> None:
    with_first = FileStore(path, 2)
    with_first.set("from", "first")
    with_first.close()
    second = FileStore(path, 2)
    assert second.get("from") == b"first"
    second.close()
    assert not os.path.exists(path)


def test_a_clone_does_not_remove_the_file_too_early(path: str) -> None:
    store = FileStore(path, 2)
    clone = store.clone()
    clone.set("key", "1")
    clone.close()
    store.close()
    late = FileStore(path, 2)
    assert late.get("key") == b"1"
    late.close()


def test_without_a_world_size_the_file_stays(path: str) -> None:
    store = FileStore(path)
    store.set("key", "1")
    store.close()
    again = FileStore(path)
    assert again.get("key") == b"1"
    again.close()


def test_garbage_collection_leaves_the_file(path: str) -> None:
    store = FileStore(path, 1)
    del store
    assert not os.path.exists(path)


def test_the_end_of_a_program_leaves_the_file(path: str) -> None:
    with run("store = FileStore(path, 1); store.set('a', 'b'); print('ok')", path) as child:
        assert child.communicate()[0] == "ok\n"
    assert not os.path.exists(path)


def test_a_file_of_a_crashed_run_is_started_afresh(path: str) -> None:
    with run("s = FileStore(path, 2); s.set('old', '1'); os._exit(1)", path) as child:
        child.communicate()
    assert os.path.exists(path)
    store = FileStore(path, 2)
    assert store.list_keys() == []
    store.close()


def test_a_file_that_a_living_process_uses_is_joined(path: str) -> None:
    program = "s = FileStore(path, 2); s.set('a', 'b'); print('set', flush=True); sys.stdin.read()"
    with run(program, path) as child:
        assert child.stdout is not None
        child.stdout.readline()
        store = FileStore(path, 2)
        assert store.get("a") == b"b"
        child.communicate("")
        store.close()
    assert not os.path.exists(path)


def test_a_file_that_is_only_partly_known_to_be_dead_says_what_to_delete(path: str) -> None:
    me = identify_self()
    dead = ProcessIdentity(**{**as_dict(me), "pid": 2**22 + 1, "started": 5})
    elsewhere = ProcessIdentity(host="far", boot_id="other", pid_namespace=1, pid=77, started=5)
    log = HEADER
    for number, process in enumerate((dead, elsewhere)):
        log += encode_record(
            StoreChange(LogEntryKind.ENTER, str(number), to_entry(process, is_counted=True))
        )
    Path(path).write_bytes(log)
    with pytest.raises(DistStoreError, match="crashed") as caught:
        FileStore(path, 2)
    assert caught.value.hint is not None
    assert caught.value.hint.endswith(f"rm {path}")
    assert "opened by pid 77 on host far" in caught.value.details
    assert Path(path).read_bytes() == log


def as_dict(process: ProcessIdentity) -> dict[str, object]:
    return {name: getattr(process, name) for name in ProcessIdentity.__dataclass_fields__}


@pytest.mark.parametrize("content", [b"something else, longer than a header", b"not ours"])
def test_another_file_is_refused_and_not_changed(path: str, content: bytes) -> None:
    Path(path).write_bytes(content)
    with pytest.raises(DistStoreError, match="not a store file"):
        FileStore(path)
    assert Path(path).read_bytes() == content


def test_another_version_is_refused(path: str) -> None:
    Path(path).write_bytes(b"distdbgF" + (7).to_bytes(4, "little") + bytes(4))
    with pytest.raises(DistStoreError, match="format 7"):
        FileStore(path)


@pytest.mark.parametrize("content", [b"", HEADER[:5], HEADER])
def test_an_empty_file_or_the_beginning_of_one_is_taken(path: str, content: bytes) -> None:
    Path(path).write_bytes(content)
    store = FileStore(path, 1)
    store.set("key", "1")
    assert store.get("key") == b"1"
    store.close()


def test_a_torn_end_is_cut_off_by_the_next_writer(path: str) -> None:
    reader, writer = FileStore(path, 3), FileStore(path, 3)
    torn = encode_record(StoreChange(LogEntryKind.SET, "torn", b"value"))
    for cut in (1, 10, len(torn) - 1):
        with open(path, "ab") as file:
            file.write(torn[:cut])
        assert not reader.check(["torn"])
        writer.set(f"after{cut}", "1")
        assert reader.get(f"after{cut}") == b"1"
    late = FileStore(path, 3)
    assert sorted(late.list_keys()) == sorted(reader.list_keys())
    for store in (reader, writer, late):
        store.close()


def test_damage_in_the_middle_is_an_error_not_data(path: str) -> None:
    store = FileStore(path)
    store.set("key", "value")
    end = os.path.getsize(path)
    store.set("more", "value")
    with open(path, "r+b") as file:
        file.seek(end + 20)
        file.write(b"?")
    with pytest.raises(DistStoreError, match=f"damaged at byte {end}"):
        FileStore(path)
    store.close()


def test_a_removed_file_is_noticed(path: str) -> None:
    store = FileStore(path)
    os.unlink(path)
    with pytest.raises(DistStoreError, match="removed while in use"):
        store.get("key")
    with pytest.raises(DistStoreError, match="removed while in use"):
        store.set("key", "1")
    store.close()


def test_a_folder_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(DistStoreError, match="No such file"):
        FileStore(str(tmp_path / "no" / "store"))


def test_a_forked_child_must_not_use_the_store_and_does_not_leave_it(path: str) -> None:
    store = FileStore(path, 1)
    pid = os.fork()
    if pid == 0:
        try:
            store.set("key", "1")
        except UsageError as error:
            status = 0 if "forked" in str(error) else 2
        except BaseException:
            status = 3
        else:
            status = 4
        store.close()
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    store.set("key", "2")
    store.close()
    assert not os.path.exists(path)


@pytest.mark.slow  # starts 10 interpreters
def test_a_kill_at_any_moment_loses_nothing_that_was_there(path: str) -> None:
    store = FileStore(path)
    program = (
        "s = FileStore(path); print('go', flush=True)\nwhile True: s.append('log', 'x' * 5000)"
    )
    draw = random.Random(3)
    before = 0
    for _ in range(10):
        with run(program, path) as child:
            assert child.stdout is not None
            child.stdout.readline()
            for _ in range(draw.randrange(20)):
                store.add("other", 1)
            child.send_signal(signal.SIGKILL)
            child.communicate()
        store.append("log", "y")
        log = store.get("log")
        assert len(log) > before
        assert log.replace(b"y", b"").strip(b"x") == b""
        assert len(log.replace(b"y", b"")) % 5000 == 0
        before = len(log)
    store.close()
