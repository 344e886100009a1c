"""A folder for a run is one where nobody else can put files or links."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from distdbg.errors import ConfigError
from distdbg.launch.outputs.folders import make_logs_folder, make_rank_folder
from distdbg.record.folders import make_run_folder, place_record
from distdbg.record.trusted_path import PathFolder, why_not

ME, OTHER, OURS, THEIRS = 1000, 1001, 100, 200


def part(path: str, uid: int, mode: int, gid: int = THEIRS) -> PathFolder:
    return PathFolder(path, uid, gid, 0o040000 | mode)


ROOT, TMP = part("/", 0, 0o755, 0), part("/tmp", 0, 0o1777, 0)


@pytest.mark.parametrize(
    "parts",
    [
        [ROOT, part("/home", 0, 0o755, 0), part("/home/me", ME, 0o755), part("/home/me/run", ME, 0o700)],
        [ROOT, TMP, part("/tmp/run", ME, 0o755)],
        [ROOT, part("/scratch", 0, 0o2775, OURS), part("/scratch/run", ME, 0o2775, OURS)],
        [ROOT, part("/project", OTHER, 0o2770, OURS), part("/project/run", ME, 0o755, OURS)],
        [ROOT, part("/mnt", 0, 0o775, 0), part("/mnt/run", ME, 0o700)],
    ],
)  # fmt: skip
def test_a_folder_of_ones_own_on_a_way_of_ones_own(parts: list[PathFolder]) -> None:
    assert why_not(parts, ME, {OURS}) is None


@pytest.mark.parametrize(
    ("parts", "path", "why"),
    [
        ([ROOT, part("/x", OTHER, 0o777)], "/x", "belongs to another user (uid 1001)"),
        ([ROOT, part("/x", OTHER, 0o777), part("/x/run", ME, 0o700)], "/x", "another user"),
        ([ROOT, part("/x", OTHER, 0o777, OURS), part("/x/run", ME, 0o700)], "/x", "all users (mode 777)"),
        ([ROOT, part("/x", OTHER, 0o755), part("/x/run", ME, 0o700)], "/x", "another user"),
        ([ROOT, part("/x", 0, 0o777, 0), part("/x/run", ME, 0o700)], "/x", "all users"),
        ([ROOT, part("/x", 0, 0o775), part("/x/run", ME, 0o700)], "/x", "by group 200"),
        ([ROOT, TMP, part("/tmp/run", OTHER, 0o1777)], "/tmp/run", "another user"),
        ([ROOT, TMP, part("/tmp/run", ME, 0o777)], "/tmp/run", "all users"),
        ([ROOT, TMP], "/tmp", "all users"),
    ],
)  # fmt: skip
def test_where_others_can_put_something(parts: list[PathFolder], path: str, why: str) -> None:
    found = why_not(parts, ME, {OURS})
    assert found is not None
    assert found[0] == path
    assert why in found[1]


def test_a_folder_that_all_may_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    for folder in (shared, shared / "run", shared / "a" / "b"):
        environ = {"DISTDBG_RUN_DIR": str(folder)}
        with pytest.raises(PermissionError, match="can be written to by all users") as caught:
            make_run_folder("run-a", environ)
        assert caught.value.filename == str(shared)
        assert "DISTDBG_STRICT_MODES=0" in str(caught.value)
        place, why = place_record("run-a", 0, environ)
        assert place is None
        assert "can be written to by all users" in why
    assert list(shared.iterdir()) == []
    monkeypatch.setenv("DISTDBG_STRICT_MODES", "0")
    folder, held = make_run_folder("run-a", {"DISTDBG_RUN_DIR": str(shared / "run")})
    os.close(held)
    assert folder.is_dir()


def test_a_link_is_followed_to_where_it_leads_before_that_is_judged(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (tmp_path / "link").symlink_to(shared)
    with pytest.raises(PermissionError, match="can be written to by all users"):
        make_run_folder("run-a", {"DISTDBG_RUN_DIR": str(tmp_path / "link")})


@pytest.mark.parametrize("name", ["logs", "logs/attempt_0"])
def test_a_link_in_place_of_a_folder_for_logs_is_not_followed(tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "run" / name).parent.mkdir(parents=True)
    (tmp_path / "run" / name).symlink_to(elsewhere)
    with pytest.raises((ConfigError, PermissionError), match="is a link, which is not followed"):
        make_rank_folder(make_logs_folder(tmp_path / "run") or tmp_path, 0, 3)
    assert list(elsewhere.iterdir()) == []


def test_a_link_in_place_of_a_ranks_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "attempt_0").mkdir()
    (tmp_path / "attempt_0" / "3").symlink_to(tmp_path)
    with pytest.raises(PermissionError, match="is a link, which is not followed"):
        make_rank_folder(tmp_path, 0, 3)
