"""Call sites: short while one file has the name, longer where several do."""

from __future__ import annotations

import pytest

from distdbg.ops import sites as this
from distdbg.ops.sites import UNKNOWN, shorten, warn_at_call_site


def test_one_file_shows_by_its_name() -> None:
    sites = ["/home/me/train.py:88 (step)", "/home/me/train.py:91 (step)"]
    assert list(shorten(sites).values()) == ["train.py:88 (step)", "train.py:91 (step)"]


def test_files_of_one_name_show_with_their_folders() -> None:
    short = shorten(
        ["/run/a/x/train.py:8 (f)", "/run/b/x/train.py:8 (f)", "/run/b/x/loss.py:1 (g)"]
    )
    assert list(short.values()) == ["a/x/train.py:8 (f)", "b/x/train.py:8 (f)", "loss.py:1 (g)"]


def test_a_path_that_ends_another_is_told_from_it() -> None:
    short = shorten(["train.py:8 (f)", "/b/train.py:8 (f)"])
    assert len(set(short.values())) == 2
    assert short["/b/train.py:8 (f)"] == "b/train.py:8 (f)"


def test_what_is_no_path_stays_as_it_is() -> None:
    sites = [UNKNOWN, "<stdin>:1 (<module>)", "C: drive/a (b)/t.py:3 (f.<locals>.<lambda>)", ""]
    assert list(shorten(sites).values()) == [
        UNKNOWN, "<stdin>:1 (<module>)", "t.py:3 (f.<locals>.<lambda>)", ""
    ]  # fmt: skip


def test_a_warning_is_of_the_programs_line_however_deep_below_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inner = compile(
        "def inner(warn): warn('reported', RuntimeWarning)", "/lib/ours/deep.py", "exec"
    )
    scope: dict[str, object] = {}
    exec(inner, scope)
    monkeypatch.setattr(this, "_folders", (*this.skipped_folders(), "/lib/ours/"))
    with pytest.warns(RuntimeWarning, match="reported") as reported:
        scope["inner"](warn_at_call_site)  # type: ignore[operator]  # the function made above
    assert [one.filename for one in reported] == [__file__]
