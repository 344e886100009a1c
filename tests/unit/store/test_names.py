from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from distdbg.errors import DistNetworkError
from distdbg.runtime.store import listen, names
from distdbg.runtime.store.holder import is_of_this_host


@pytest.fixture
def silence() -> Iterator[Any]:
    """A resolver that answers nothing while the test runs."""
    is_over = threading.Event()

    def ask(*_: object, **__: object) -> list[tuple[Any, ...]]:
        is_over.wait()
        return []

    yield ask
    is_over.set()


def test_a_resolver_that_hangs_is_not_waited_for(silence: Any) -> None:
    begin_s = time.monotonic()
    with pytest.raises(names.NoNameServer, match=r"no name server answers for .silent\.example."):
        names.look_up("silent.example", 80, limit_s=0.1, ask=silence)
    assert time.monotonic() - begin_s < 5.0


def test_an_address_is_no_name(silence: Any) -> None:
    assert names.look_up("127.0.0.1", 80, ask=silence)[0][4] == ("127.0.0.1", 80)


def test_a_name_is_found_and_an_unknown_one_is_not() -> None:
    assert names.look_up("localhost", 80)
    with pytest.raises(socket.gaierror):
        names.look_up("no such host", 80)


def test_a_store_that_is_to_be_served_at_such_a_name_says_so(
    silence: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names.look_up, "__kwdefaults__", {"limit_s": 0.1, "ask": silence})
    with pytest.raises(DistNetworkError, match=r"no name server answers for .silent\.example."):
        listen.listen_on("silent.example", 0)
    assert not is_of_this_host("silent.example")
