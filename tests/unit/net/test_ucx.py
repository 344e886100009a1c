"""When UCX is asked for, when it is chosen, and what ranks tell each other of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from distdbg.errors import ConfigError
from distdbg.runtime.net import ucx
from distdbg.runtime.net.hub import PeerAddress


def make_port(folder: Path, device: str, port: int, state: str) -> None:
    place = folder / device / "ports" / str(port)
    place.mkdir(parents=True)
    (place / "state").write_text(f"{state}\n")


def test_only_ports_that_are_up_are_a_fabric(tmp_path: Path) -> None:
    assert ucx.active_fabrics(tmp_path / "none") == []
    make_port(tmp_path, "mlx5_0", 1, "1: DOWN")
    make_port(tmp_path, "mlx5_1", 1, "2: INIT")
    assert ucx.active_fabrics(tmp_path) == []
    make_port(tmp_path, "mlx5_1", 2, "4: ACTIVE")
    make_port(tmp_path, "irdma0", 1, "4: ACTIVE")
    assert ucx.active_fabrics(tmp_path) == ["irdma0/1", "mlx5_1/2"]


@pytest.mark.parametrize(
    ("transport", "tls", "is_up", "is_worth"),
    [
        ("auto", "0", True, True),
        ("auto", "0", False, False),
        ("auto", "1", True, False),  # which UCX cannot give
        ("tcp", "0", True, False),
    ],
)
def test_ucx_is_chosen_where_a_fabric_is_up_and_nothing_forbids_it(
    transport: str,
    tls: str,
    is_up: bool,
    is_worth: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_port(tmp_path, "mlx5_0", 1, "4: ACTIVE" if is_up else "1: DOWN")
    monkeypatch.setattr(ucx.active_fabrics, "__defaults__", (tmp_path,))
    monkeypatch.setenv("DISTDBG_TRANSPORT", transport)
    monkeypatch.setenv("DISTDBG_TLS", tls)
    assert ucx.is_worth_it() == is_worth
    assert not ucx.is_demanded()


def test_tls_and_ucx_exclude_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTDBG_TRANSPORT", "ucx")
    assert ucx.is_demanded()
    monkeypatch.setenv("DISTDBG_TLS", "1")
    with pytest.raises(ConfigError, match="exclude each other: UCX encrypts nothing"):
        ucx.is_demanded()


def test_an_error_names_each_library_that_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ucx, "_libraries", lambda: ["/nowhere/libucp.so.0", "libc.so.6"])
    monkeypatch.setenv("UCX_LOG_FILE", "mine")
    with pytest.raises(ConfigError, match="UCX cannot be used here") as caught:
        ucx.open_engine(b"token")
    assert "/nowhere/libucp.so.0" in caught.value.details[0]
    assert "libc.so.6 has no ucp_get_version" in caught.value.details[1]
    assert "libucx0" in str(caught.value.hint)
    assert os.environ["UCX_LOG_FILE"] == "mine"
    assert "UCX_HANDLE_ERRORS" not in os.environ


@pytest.mark.parametrize(
    "reach",
    [
        PeerAddress("10.0.0.1:80"),
        PeerAddress("[fe80::1%2]:80", bytes(range(256))),
        PeerAddress("10.0.0.1:80", refusal="libucp cannot be opened: no such file"),
    ],
)
def test_ranks_understand_each_other(reach: PeerAddress) -> None:
    assert PeerAddress.from_bytes(reach.to_bytes()) == reach
