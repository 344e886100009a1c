"""The file in which rank 0 publishes its address."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from distdbg.errors import ConfigError
from distdbg.runtime.rendezvous import published_store
from distdbg.runtime.rendezvous.process import identify_self

ME = identify_self()


def make_published(port: int = 4711) -> published_store.PublishedStore:
    return published_store.PublishedStore(
        host="127.0.0.1", port=port, nonce=published_store.new_nonce(), writer=ME
    )


def test_what_is_published_is_read(tmp_path: Path) -> None:
    path = str(tmp_path / "spot")
    published = make_published()
    published_store.publish(path, published)
    assert published_store.read(path) == published
    assert published_store.read_if_alive(path, ME) == published
    assert os.listdir(tmp_path) == ["spot"]
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_a_process_that_is_gone_is_not_believed(tmp_path: Path) -> None:
    path = str(tmp_path / "spot")
    published_store.publish(path, replace(make_published(), writer=replace(ME, started=1)))
    assert published_store.read(path) is not None
    assert published_store.read_if_alive(path, ME) is None


def test_a_host_started_again_makes_all_its_processes_gone(tmp_path: Path) -> None:
    path = str(tmp_path / "spot")
    published_store.publish(path, replace(make_published(), writer=replace(ME, boot_id="before")))
    assert published_store.read_if_alive(path, ME) is None


def test_withdrawing_leaves_what_another_process_published(tmp_path: Path) -> None:
    path = str(tmp_path / "spot")
    mine, other = make_published(1), make_published(2)
    published_store.publish(path, mine)
    published_store.publish(path, other)
    published_store.withdraw(path, mine)
    assert published_store.read(path) == other
    published_store.withdraw(path, other)
    assert not os.path.exists(path)
    published_store.withdraw(path, other)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"port": "x"}', "\0" * 100])
def test_a_file_of_something_else_is_nothing(tmp_path: Path, content: str) -> None:
    path = tmp_path / "spot"
    path.write_text(content)
    assert published_store.read(str(path)) is None


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = str(tmp_path / "target")
    published_store.publish(target, make_published())
    os.symlink(target, tmp_path / "spot")
    assert published_store.read(str(tmp_path / "spot")) is None


def test_the_private_folder_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = published_store.published_path("some job")
    assert path != published_store.published_path("another job")
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700


def test_a_folder_that_others_may_enter_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"distdbg-{os.getuid()}").mkdir(mode=0o755)
    with pytest.raises(ConfigError, match="only you can enter"):
        published_store.published_path("some job")


def test_a_link_in_the_place_of_the_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / f"distdbg-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="only you can enter"):
        published_store.published_path("some job")


def test_the_file_is_small_json(tmp_path: Path) -> None:
    path = tmp_path / "spot"
    published_store.publish(str(path), make_published())
    assert json.loads(path.read_text())["port"] == 4711
