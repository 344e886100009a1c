"""Where the run's token comes from, and what makes its file untrustworthy."""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path

import pytest

from distdbg.errors import ConfigError
from distdbg.runtime.rendezvous.token import run_token


def test_the_variable_comes_first(tmp_path: Path) -> None:
    file = tmp_path / "file"
    assert run_token({"DISTDBG_TOKEN": "text", "DISTDBG_TOKEN_FILE": str(file)}) == b"text"


def test_a_named_file_is_read_without_its_line_end(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("secret\n")
    file.chmod(0o600)
    assert run_token({"DISTDBG_TOKEN": "", "DISTDBG_TOKEN_FILE": str(file)}) == b"secret"


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("secret")
    file.chmod(0o640)
    with pytest.raises(ConfigError, match="mode 640") as caught:
        run_token({"DISTDBG_TOKEN_FILE": str(file)})
    assert caught.value.hint == f"chmod 600 {file}"


def test_a_named_file_that_is_missing_or_empty_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with pytest.raises(ConfigError, match="cannot be read"):
        run_token({"DISTDBG_TOKEN_FILE": str(file)})
    file.touch(0o600)
    with pytest.raises(ConfigError, match="empty"):
        run_token({"DISTDBG_TOKEN_FILE": str(file)})


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    (tmp_path / "folder").mkdir(0o700)
    for name in ("fifo", "folder"):
        with pytest.raises(ConfigError, match=f"{name} is not a file"):
            run_token({"DISTDBG_TOKEN_FILE": str(tmp_path / name)})


def test_the_users_own_file_is_made_once_and_private(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    token = run_token(environ)
    assert len(token) == 64
    assert run_token(environ) == token
    folder = tmp_path / "distdbg"
    assert [entry.name for entry in folder.iterdir()] == ["token"]
    assert os.stat(folder).st_mode & 0o777 == 0o700
    assert os.stat(folder / "token").st_mode & 0o777 == 0o600


def test_ranks_that_start_together_agree(tmp_path: Path) -> None:
    tokens: list[bytes] = []
    start = threading.Barrier(8)

    def rank() -> None:
        start.wait()
        tokens.append(run_token({"XDG_STATE_HOME": str(tmp_path)}))

    threads = [threading.Thread(target=rank) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tokens) == 8
    assert len(set(tokens)) == 1


def test_a_home_that_cannot_be_written_is_replaced_by_a_private_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()  # a file where a folder is needed fails for root as well
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    token = run_token({"XDG_STATE_HOME": str(blocked)})
    assert (tmp_path / f"distdbg-{os.getuid()}" / "token").read_bytes().strip() == token


def test_an_empty_home_is_not_taken_for_the_root_of_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "another"))
    token = run_token({"HOME": ""})
    assert (tmp_path / f"distdbg-{os.getuid()}" / "token").read_bytes().strip() == token
    assert not (tmp_path / "another").exists()
