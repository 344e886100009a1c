"""A kept profile is used only where it was measured, and only if nobody else can have written it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from distdbg.errors import ConfigError
from distdbg.ops.call import Kind
from distdbg.runtime.tuning import background
from distdbg.runtime.tuning.current import current_profile
from distdbg.runtime.tuning.profile import NEVER, Profile, TransportKind, Ways
from distdbg.runtime.tuning.profile_file import KeptProfile, Machine, read_kept, write_kept
from distdbg.runtime.tuning.tuner import is_disturbing

MACHINE = Machine("Xeon", 2, "6.1", "0.1.0")
KEPT = KeptProfile(
    MACHINE,
    Profile(spins=40, pairs=Ways.all(TransportKind.DIRECT)),
    {"2 way": {"slots": 1e-6}},
    0.4,
    "now",
)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


def keep(environ: dict[str, str], kept: KeptProfile = KEPT) -> Path:
    path = write_kept(kept, environ)
    assert path is not None
    return path


def test_what_was_kept_is_read(environ: dict[str, str]) -> None:
    path = keep(environ)
    assert read_kept(MACHINE, environ) == replace(KEPT, path=path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize(
    "other",
    [
        replace(MACHINE, cpu="EPYC"),
        replace(MACHINE, cores=4),
        replace(MACHINE, kernel="6.2"),
        replace(MACHINE, version="0.2.0"),
    ],
)
def test_another_machine_has_its_own(environ: dict[str, str], other: Machine) -> None:
    path = keep(environ)
    assert read_kept(other, environ) is None
    # Nor is one taken for another's by its name alone.
    path.rename(path.parent / other.file_name)
    assert read_kept(other, environ) is None


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def be_something_else(path: Path) -> None:
    path.write_text("[]")


def be_no_text(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00")


def be_nested(path: Path) -> None:
    path.write_text("[" * 100_000)


def hold_nonsense(path: Path) -> None:
    plain = json.loads(path.read_text())
    plain["profile"]["spins"] = -1
    path.write_text(json.dumps(plain))


def have_another_format(path: Path) -> None:
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))


def be_open_to_the_group(path: Path) -> None:
    path.chmod(0o620)


def be_open_to_all(path: Path) -> None:
    path.chmod(0o604)


def be_a_link(path: Path) -> None:
    path.rename(path.parent / "elsewhere")
    path.symlink_to(path.parent / "elsewhere")


def be_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def be_endless(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b" " * (1 << 20))


@pytest.mark.parametrize(
    "spoil",
    [
        cut,
        be_something_else,
        be_no_text,
        be_nested,
        hold_nonsense,
        have_another_format,
        be_open_to_the_group,
        be_open_to_all,
        be_a_link,
        be_a_pipe,
        be_endless,
    ],
)
def test_a_file_that_cannot_be_trusted_is_not_used_and_is_written_again(
    environ: dict[str, str], spoil: Callable[[Path], None]
) -> None:
    path = keep(environ)
    spoil(path)
    assert read_kept(MACHINE, environ) is None
    assert keep(environ) == path
    assert read_kept(MACHINE, environ) is not None


def test_a_file_of_somebody_else_is_not_used(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(environ)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert read_kept(MACHINE, environ) is None


def test_where_nothing_can_be_kept_nothing_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setattr("tempfile.tempdir", str(file))
    assert write_kept(KEPT, {"XDG_STATE_HOME": str(file)}) is None


# ------------------------------------------------------------------------------- what is used


@pytest.fixture
def here(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A host of which something is kept."""
    monkeypatch.setattr(Machine, "here", lambda: MACHINE)
    keep(environ)
    return environ


def test_a_group_begins_with_what_is_kept_unless_told_otherwise(here: dict[str, str]) -> None:
    assert current_profile(here) == KEPT.profile
    assert current_profile(here | {"DISTDBG_TUNE": "off"}) == Profile()
    assert current_profile({"XDG_STATE_HOME": "/nowhere"}) == Profile()


def test_rules_change_single_values(here: dict[str, str]) -> None:
    words = (
        "all_reduce@1MiB=half, broadcast=slots, stream_nbytes=never, tile_nbytes=1MiB, yield_ns=0"
    )
    profile = current_profile(here | {"DISTDBG_TUNE": words})
    assert profile.pairs.way(Kind.ALL_REDUCE, 1 << 20) is TransportKind.HALF
    assert profile.pairs.way(Kind.ALL_REDUCE, 4 << 20) is TransportKind.DIRECT  # as kept
    assert profile.crowds.way(Kind.BROADCAST, 1 << 30) is TransportKind.SLOTS
    assert profile.spins == 40
    assert (profile.stream_nbytes, profile.tile_nbytes, profile.yield_ns) == (NEVER, 1 << 20, 0)


def test_who_says_how_large_slots_are_has_rounds_of_that_size(here: dict[str, str]) -> None:
    keep(
        here,
        replace(
            KEPT,
            profile=Profile(
                pairs=Ways.all(TransportKind.HALF), crowds=Ways.all(TransportKind.DIRECT)
            ),
        ),
    )
    profile = current_profile(here | {"DISTDBG_SLOT_NBYTES": "65536"})
    assert (profile.pairs, profile.crowds) == (Ways(), Ways.all(TransportKind.DIRECT))


@pytest.mark.parametrize(
    "words",
    [
        "fast",
        "all_reduce",
        "all_reduce=fast",
        "reduce=direct",
        "all_reduce@1B=half",
        "spins=0",
        "spins=x",
    ],
)
def test_what_is_no_rule_is_an_error_that_says_what_is(words: str) -> None:
    with pytest.raises(ConfigError, match="DISTDBG_TUNE has") as caught:
        current_profile({"XDG_STATE_HOME": "/nowhere", "DISTDBG_TUNE": words})
    assert "KIND[@SIZE]=slots|half|direct" in str(caught.value)


# ------------------------------------------------------------------------------- when it is measured


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> list[list[str]]:
    """The commands that are started, on a host of which nothing is kept."""
    commands: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda words, **_: commands.append(words))
    monkeypatch.setenv("XDG_STATE_HOME", environ["XDG_STATE_HOME"])
    monkeypatch.setenv("DISTDBG_TUNE", "on")
    return commands


def test_a_host_of_which_nothing_is_kept_is_measured(started: list[list[str]]) -> None:
    assert background.start_tuner()
    [words] = started
    assert words[-2:] == ["-m", "distdbg.runtime.tuning.tuner"]


def test_a_host_is_not_measured_twice_nor_where_it_is_off(
    started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_TUNE", "off")
    assert not background.start_tuner()
    monkeypatch.setenv("DISTDBG_TUNE", "on")
    assert write_kept(replace(KEPT, machine=Machine.here())) is not None
    assert not background.start_tuner()
    assert started == []


def test_a_host_that_was_busy_is_left_alone_for_a_while(
    started: list[list[str]], environ: dict[str, str]
) -> None:
    lock = Path(environ["XDG_STATE_HOME"], "distdbg", background.LOCK)
    lock.parent.mkdir(parents=True)
    lock.touch()
    assert not background.start_tuner()
    long_ago = lock.stat().st_mtime - 3600
    os.utime(lock, (long_ago, long_ago))
    assert background.start_tuner()
    assert len(started) == 1


def test_others_disturb_who_take_cores_that_are_needed() -> None:
    assert is_disturbing(0.5, ranks=4, cores=2)
    assert not is_disturbing(0.1, ranks=4, cores=2)
    assert not is_disturbing(20.0, ranks=4, cores=64)
    assert is_disturbing(61.0, ranks=4, cores=64)
