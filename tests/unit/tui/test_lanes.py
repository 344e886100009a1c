"""Bars as letters."""

from distdbg.tui.lanes import StyledRun, Window, bar_at, paint
from distdbg.view.snapshot import Bar


def bar(issued: float, started: float | None, ended: float | None, **more: object) -> Bar:
    usual = {"number": 1, "kind": "all_reduce", "name": "all_reduce #1", "group": "", "seq": 1}
    return Bar(issued=issued, started=started, ended=ended, **(usual | more))  # type: ignore[arg-type]


def text(runs: list[StyledRun]) -> str:
    return "".join(run.text for run in runs)


TEN = Window(0.0, 10.0, 10)


def test_a_bar_waits_as_a_line_and_moves_as_a_block() -> None:
    assert text(paint([bar(1, 4, 7)], TEN, 10)) == " ───███   "


def test_halves_of_letters_are_told_apart() -> None:
    assert text(paint([bar(1.5, 4.5, 7.5)], TEN, 10)) == " ╶──▐██▌  "


def test_two_kinds_in_one_letter_have_both_colours() -> None:
    bars = [bar(1, 1, 2.5), bar(2.5, 2.5, 4, kind="barrier")]
    runs = paint(bars, TEN, 10)
    both = next(run for run in runs if run.behind)
    assert both.text == "▌"
    assert both.family != both.behind


def test_what_failed_before_it_began_has_waited_all_the_time() -> None:
    assert text(paint([bar(1, None, 4, has_failed=True)], TEN, 10)) == " ───✗     "


def test_what_has_not_ended_reaches_the_present() -> None:
    assert text(paint([bar(1, None, None)], TEN, 4)) == " ───▸     "


def test_what_ended_without_a_known_start_is_taken_to_have_moved() -> None:
    assert text(paint([bar(1, None, 4)], TEN, 10)) == " ███      "


def test_short_ops_with_room_between_them_are_low() -> None:
    bars = [bar(at / 10, at / 10, at / 10 + 0.02, number=at) for at in range(100)]
    assert text(paint(bars, TEN, 10)) == "▄" * 10
    bars = [bar(at / 10, at / 10, at / 10 + 0.09, number=at) for at in range(100)]
    assert text(paint(bars, TEN, 10)) == "█" * 10


def test_many_short_waits_are_a_line() -> None:
    bars = [bar(at / 10, at / 10 + 0.08, at / 10 + 0.09, number=at) for at in range(100)]
    assert text(paint(bars, TEN, 10)) == "─" * 10


def test_one_short_op_is_never_lost() -> None:
    assert text(paint([bar(3.2, 3.2, 3.2000001)], TEN, 10)) == "   ▖      "


def test_a_name_is_written_where_it_has_room() -> None:
    line = paint([bar(1, 1, 9)], Window(0.0, 10.0, 40), 10)
    assert "all_reduce #1" in text(line)
    assert next(run for run in line if run.text == "all_reduce #1").mark == "name"


def test_what_lies_outside_is_not_drawn_and_what_reaches_in_is_cut() -> None:
    assert text(paint([bar(-5, -4, -1), bar(11, 11, 12)], TEN, 12)) == " " * 10
    assert text(paint([bar(-5, -5, 2), bar(8, 8, 99)], TEN, 99)) == "██      ██"


def test_a_line_is_as_long_as_its_window_whatever_is_on_it() -> None:
    bars = [bar(at * 0.37, at * 0.37 + 0.1, at * 0.37 + 0.6, number=at) for at in range(40)]
    for width in (1, 2, 7, 80):
        window = Window(0.3, 9.1, width)
        for chosen in (0, 3):
            assert len(text(paint(bars, window, 10, chosen))) == width


def test_the_op_at_a_moment_is_the_last_issued_or_the_nearest() -> None:
    bars = [bar(1, 1, 9, number=1), bar(2, 2, 3, number=2), bar(9.5, 9.5, None, number=3)]
    assert bar_at(bars, 2.5, 20, 0.1) is bars[1]
    assert bar_at(bars, 5, 20, 0.1) is bars[0]
    assert bar_at(bars, 9.2, 20, 0.1) is None
    assert bar_at(bars, 9.45, 20, 0.1) is bars[2]
    assert bar_at(bars, 15, 20, 0.1) is bars[2]
