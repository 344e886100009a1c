"""HOST:PORT."""

from __future__ import annotations

import pytest

from distdbg.errors import UsageError
from distdbg.launch.endpoint import parse_endpoint


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("n01:29500", "n01", 29500),
        (" n01 ", "n01", None),
        ("[::1]:0", "::1", 0),
        ("[fe80::1%eth0]", "fe80::1%eth0", None),
        ("fe80::1", "fe80::1", None),
        ("10.0.0.1:65535", "10.0.0.1", 65535),
    ],
)
def test_an_endpoint_is_a_host_and_maybe_a_port(text: str, host: str, port: int | None) -> None:
    assert parse_endpoint("--x", text) == (host, port)
    assert parse_endpoint("--x", text, 7) == (host, 7 if port is None else port)


@pytest.mark.parametrize("text", ["", ":80", "[::1", "[::1]80", "a b:1", "tcp://n01:1", "n01/x"])
def test_what_is_no_endpoint_is_said_so(text: str) -> None:
    with pytest.raises(UsageError, match=r"--x=.* is not valid; expected HOST:PORT|port must be"):
        parse_endpoint("--x", text)


@pytest.mark.parametrize("port", ["", "x", "65536", "-1", "1000000"])
def test_a_port_is_a_number_below_65536(port: str) -> None:
    with pytest.raises(UsageError, match="the port must be a number from 0 to 65535"):
        parse_endpoint("--x", f"n01:{port}")
