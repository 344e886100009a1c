from __future__ import annotations

import pytest

from distdbg.errors import DistStoreError, RendezvousError
from distdbg.launch.rendezvous.board import Board
from distdbg.runtime.store import HashStore


def test_who_serves_the_store_is_learnt_by_a_launcher_that_was_there_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = HashStore()
    early, server = Board(store, "job", "here:1"), Board(store, "job", "here:1")
    early.open(1, 3)
    server.introduce_server("launcher a on b")
    early.read()

    def fail(_key: str) -> bytes:
        raise DistStoreError("the connection is closed")

    monkeypatch.setattr(store, "get", fail)
    with pytest.raises(RendezvousError, match="it was served by launcher a on b"):
        early.read()
