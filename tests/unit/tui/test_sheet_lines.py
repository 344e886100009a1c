"""Lines of a sheet: wrapped, and narrowed to what fits."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from distdbg.tui.cells import Cell, Filter, Tone
from distdbg.tui.sheet import line, narrowed, title
from distdbg.tui.wrapped import wrap


def words(rows: list[tuple[Cell, ...]]) -> list[str]:
    return ["".join(cell.text for cell in row) for row in rows]


def test_a_long_line_is_broken_at_blanks_and_hangs() -> None:
    cells = (Cell("hint: ", Tone.ACCENT), Cell("send before you receive on one of them"))
    rows = list(wrap(cells, 24, 6))
    assert words(rows) == ["hint: send before you", "      receive on one of", "      them"]
    assert rows[0][0].tone is Tone.ACCENT


def test_a_word_that_is_too_long_is_cut() -> None:
    assert words(list(wrap((Cell("at " + "x" * 30),), 20, 2))) == [
        "at " + "x" * 17, "  " + "x" * 13,
    ]  # fmt: skip


def test_wide_letters_are_counted_as_wide_as_they_are() -> None:
    rows = words(list(wrap((Cell("日本語のグループ名 and more"),), 12, 0)))
    assert rows == ["日本語のグル", "ープ名 and", "more"]
    assert words(list(wrap((Cell("日" * 20),), 13, 0))) == ["日" * 6] * 3 + ["日" * 2]


@given(st.text("ab ", max_size=200), st.integers(12, 60), st.integers(0, 4))
def test_wrapping_loses_only_blanks(text: str, width: int, hang: int) -> None:
    rows = words(list(wrap((Cell(text),), width, hang)))
    assert all(len(row) <= width for row in rows)
    assert "".join(rows).replace(" ", "") == text.replace(" ", "")


def test_a_filter_keeps_blocks_together_and_the_titles_over_them() -> None:
    lines = [
        title("first"), line("alpha"), title("second"),
        replace(line("beta"), block=1), replace(line("gamma"), block=1, is_fault=True),
        title("third"), line("delta"),
    ]  # fmt: skip

    def seen(only: str | None, faults: bool = False) -> list[str]:
        kept = narrowed(lines, Filter(only) if only else None, faults)
        return [one.cells[0].text for one in kept]

    assert seen(None) == ["first", "alpha", "second", "beta", "gamma", "third", "delta"]
    assert seen("gam") == ["second", "beta", "gamma"]
    assert seen("alpha|delta") == ["first", "alpha", "third", "delta"]
    assert seen(None, faults=True) == ["second", "beta", "gamma"]
    assert seen("alpha", faults=True) == []
