"""Times that lines begin with."""

from __future__ import annotations

import calendar

import pytest

from distdbg.launch.outputs.timed import Stamp, read_stamp, zone_of

HOUR = 3_600 * 10**9
NOON = calendar.timegm((2026, 11, 20, 12, 0, 0)) * 10**9


@pytest.mark.parametrize(
    ("line", "ns", "has_zone"),
    [
        ("2026-11-20 12:00:00,250 INFO train", NOON + 250_000_000, False),
        ("2026-11-20T12:00:00.000000001Z x", NOON + 1, True),
        ("[2026-11-20 12:00:00] x", NOON, False),
        ("2026-11-20T14:00:00+02:00 x", NOON, True),
        ("2026-11-20T08:30:00-0330 x", NOON, True),
        ("[E1120 12:00:00.793142038 ProcessGroupNCCL.cpp:629] x", NOON + 793_142_038, False),
        ("[rank3]:[W1120 12:00:00.5 ProcessGroup.cpp:1] x", NOON + 500_000_000, False),
        ("I1120 12:00:00.000000 4711 main.cc:3] x", NOON, False),
    ],
)
def test_a_time_is_read(line: str, ns: int, has_zone: bool) -> None:
    assert read_stamp(line, NOON) == Stamp(ns, has_zone)


@pytest.mark.parametrize(
    "line",
    ["", "epoch 1 loss 0.5", "2026-13-20 12:00:00 x", "E1399 12:00:00 x", "E1120 25:00:00 x"],
)
def test_other_lines_have_none(line: str) -> None:
    assert read_stamp(line, NOON) is None


def test_the_year_is_the_nearest() -> None:
    january = calendar.timegm((2027, 1, 1, 0, 0, 5)) * 10**9
    stamp = read_stamp("[I1231 23:59:59.0 x.cpp:1] x", january)
    assert stamp is not None
    assert january - stamp.ns == 6 * 10**9


def test_a_zone_is_whole_quarters_of_an_hour() -> None:
    assert zone_of(NOON + 2 * HOUR, NOON + 3 * 10**9) == -2 * HOUR
    assert zone_of(NOON - 7 * HOUR // 2, NOON) == 7 * HOUR // 2
    assert zone_of(NOON, NOON + 60 * 10**9) == 0
