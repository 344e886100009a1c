from __future__ import annotations

from pathlib import Path

from distdbg.record.stop_order import read_stop_order, write_stop_order


def test_the_first_who_asked_is_named(tmp_path: Path) -> None:
    assert read_stop_order(tmp_path) == ""
    write_stop_order(tmp_path, "anna")
    write_stop_order(tmp_path, "bert")
    assert read_stop_order(tmp_path) == "anna"


def test_what_others_wrote_is_no_command_for_a_terminal(tmp_path: Path) -> None:
    write_stop_order(tmp_path, "a\x1b[2J" + "x" * 1000)
    assert read_stop_order(tmp_path).isprintable()
    assert len(read_stop_order(tmp_path)) <= 64
    write_stop_order(tmp_path / "gone", "anna")
    assert read_stop_order(tmp_path / "gone") == ""
