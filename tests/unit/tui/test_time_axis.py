"""What is written at an axis of time."""

import pytest

from distdbg.tui.time_axis import axis, moment, step_of


@pytest.mark.parametrize(
    ("seconds", "step", "said"),
    [
        (0, 1, "0 s"),
        (12, 1, "12 s"),
        (0.25, 0.05, "0.25 s"),
        (185, 5, "3:05 min"),
        (3840, 60, "1:04:00 h"),
        (125.5, 0.5, "2:05.5 min"),
        (-2, 1, "-2 s"),
    ],
)  # fmt: skip
def test_a_moment_is_as_exact_as_the_step(seconds: float, step: float, said: str) -> None:
    assert moment(seconds, step) == said


@pytest.mark.parametrize("seconds", [2e-5, 1e-3, 0.3, 1, 7, 90, 4000, 1e6, 3e6])
@pytest.mark.parametrize("width", [1, 10, 57, 73, 190])
def test_an_axis_has_its_width_and_lines_apart(seconds: float, width: int) -> None:
    zero = 1_800_000_000.0
    line = axis(zero + 3, zero + 3 + seconds, zero, width)
    assert len(line) == width
    assert step_of(seconds, width) > 0
    if width >= 57 and seconds < 3e6:
        assert line.count("╷") >= 1


def test_times_that_are_close_together_are_told_from_the_first() -> None:
    line = axis(3.0, 3.001, 0.0, 80)
    assert "3.0000 s" in line
    assert "+200 us" in line
