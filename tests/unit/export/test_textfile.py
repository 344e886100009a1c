from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdbg.errors import ConfigError
from distdbg.export.metrics import textfile
from distdbg.export.metrics.collect import collect
from distdbg.export.metrics.model import Metrics
from distdbg.export.metrics.text import to_text
from distdbg.export.metrics.textfile import file_name, write_textfile
from distdbg.export.metrics.totals import Accumulator
from tests.unit.export.test_text import whole, whole_host


def newer() -> Metrics:
    """The same host of the same run, with other numbers."""
    return collect(replace(whole_host(), ranks=()), Accumulator())


def test_the_file_has_what_a_scraper_would_get(tmp_path: Path) -> None:
    metrics = whole()
    path = write_textfile(tmp_path, metrics)
    assert path == tmp_path / "distdbg_0412@n01.prom"
    assert path.read_bytes() == to_text(metrics)
    assert os.listdir(tmp_path) == [path.name]


def test_everybody_may_read_it_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        path = write_textfile(tmp_path, whole())
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_who_has_the_old_file_open_reads_it_to_its_end(tmp_path: Path) -> None:
    old = whole()
    path = write_textfile(tmp_path, old)
    with path.open("rb") as file:
        file.read(10)
        write_textfile(tmp_path, newer())
        file.seek(0)
        assert file.read() == to_text(old)
    assert path.read_bytes() == to_text(newer())


def test_a_folder_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not there") as caught:
        write_textfile(tmp_path / "none", whole())
    assert "--collector.textfile.directory" in str(caught.value)


def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_textfile(tmp_path, whole())
    before = path.read_bytes()
    real = os.open

    def open_full(name: str, *rest: int) -> int:
        """As a file on a device that is always full."""
        made, full = real(name, *rest), real("/dev/full", os.O_WRONLY)
        os.dup2(full, made)
        os.close(full)
        return made

    monkeypatch.setattr(textfile.os, "open", open_full)
    monkeypatch.setattr(textfile.os, "fchmod", lambda *_: None)
    with pytest.raises(ConfigError, match="No space left on device"):
        write_textfile(tmp_path, newer())
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


def test_a_link_in_its_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("kept")
    (tmp_path / "distdbg_0412@n01.prom").symlink_to(other)
    assert not write_textfile(tmp_path, whole()).is_symlink()
    assert other.read_text() == "kept"


def test_two_hosts_of_a_run_share_a_folder(tmp_path: Path) -> None:
    first, second = whole(), whole(name="n02")
    paths = [write_textfile(tmp_path, one) for one in (first, second)]
    assert [path.read_bytes() for path in paths] == [to_text(first), to_text(second)]
    assert sorted(os.listdir(tmp_path)) == ["distdbg_0412@n01.prom", "distdbg_0412@n02.prom"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a_b", "c"), ("a", "b_c")),
        (("a", "b/c"), ("a", "b_c")),
        (("a@b", "c"), ("a", "b@c")),
        (("r" * 300, "n01"), ("r" * 301, "n01")),
        (("r", "h" * 300), ("r", "h" * 301)),
        (("r", "\udcff"), ("r", "\udcfe")),
        (("", "a"), ("a", "")),
    ],
)
def test_names_that_look_alike_are_two_files(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert file_name(*one) != file_name(*other)


_NAMES = st.tuples(st.text(max_size=300), st.text(max_size=300))


@given(_NAMES, _NAMES)
def test_each_host_of_each_run_has_a_file_name_of_its_own(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    for run, host in (one, other):
        name = file_name(run, host)
        assert "/" not in name
        assert name.startswith("distdbg_")
        assert name.endswith(".prom")
        assert name.isascii()
        assert len(name) < 200
    assert (file_name(*one) == file_name(*other)) == (one == other)
