from __future__ import annotations

import pytest

from distdbg.errors import ConfigError
from distdbg.runtime.plan.link import NetworkLink, measured_link, parse_link


def test_what_the_variable_says() -> None:
    link = parse_link("5us,40Gb")
    assert (link.latency_s, link.byte_s) == pytest.approx((5e-6, 8 / 40e9))
    assert parse_link(" 0.5us , 2.5Gb ").words == "0.5us,2.5Gb"
    assert parse_link(NetworkLink().words).words == NetworkLink().words


@pytest.mark.parametrize(
    "text", ["", "5", "5us", "40Gb", "5ms,40Gb", "0us,40Gb", "5us,0Gb", "1.2.3us,4Gb"]
)
def test_what_is_no_link(text: str) -> None:
    with pytest.raises(ConfigError, match=r"DISTDBG_LINK has .* expected latency and bandwidth"):
        parse_link(text)


def test_measured_links_are_rounded() -> None:
    first = measured_link(34e-6, 34e-6 + 250e-6, 262144)
    second = measured_link(38e-6, 38e-6 + 220e-6, 262144)
    assert first == second
    assert first.words == "32us,8Gb"


def test_impossible_times_give_a_link_all_the_same() -> None:
    link = measured_link(0.0, 0.0, 262144)
    assert link.latency_s == NetworkLink.LEAST_LATENCY_S
    assert link.byte_s > 0


@pytest.mark.parametrize(
    ("short_s", "long_s"), [(30e-6, 29e-6), (30e-6, 30e-6), (2.5, 2.6), (40.0, 90.0), (1e-7, 1e-3)]
)
def test_what_is_measured_on_a_busy_host_can_be_read_by_all(short_s: float, long_s: float) -> None:
    link = measured_link(short_s, long_s, 256 << 10)
    assert parse_link(link.words).words == link.words
    assert link.GBIT_RANGE[0] <= 8e-9 / link.byte_s <= link.GBIT_RANGE[1]
