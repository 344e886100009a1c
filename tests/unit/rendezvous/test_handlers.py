"""rendezvous() as a generator, and handlers that users register."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest

import distdbg as dist
from distdbg.errors import UsageError
from distdbg.runtime.rendezvous import join, register_rendezvous_handler, rendezvous
from distdbg.runtime.rendezvous.join import _handlers
from distdbg.runtime.store import HashStore, Store


@pytest.fixture
def seen() -> Iterator[list[tuple[str, timedelta]]]:
    calls: list[tuple[str, timedelta]] = []

    def handle(
        url: str, timeout: timedelta = timedelta(seconds=1)
    ) -> Iterator[tuple[Store, int, int]]:
        calls.append((url, timeout))
        query = parse_qs(urlsplit(url).query)
        yield HashStore(), int(query["rank"][0]), int(query["world_size"][0])

    register_rendezvous_handler("mine", handle)
    yield calls
    del _handlers["mine"]  # there is no public way to take a handler back, as in torch


def test_a_handler_gets_rank_and_size_in_its_url(seen: list[tuple[str, timedelta]]) -> None:
    store, rank, world_size = next(
        rendezvous("mine://n01/x?a=1&rank=9", 2, 3, timeout=timedelta(seconds=7))
    )
    assert isinstance(store, HashStore)
    assert (rank, world_size) == (2, 3)
    assert seen == [("mine://n01/x?a=1&rank=2&world_size=3", timedelta(seconds=7))]


def test_init_goes_through_a_registered_handler(seen: list[tuple[str, timedelta]]) -> None:
    dist.init_process_group(init_method="mine://n01", rank=0, world_size=1)
    assert dist.get_world_size() == 1
    dist.destroy_process_group()
    assert len(seen) == 1


@pytest.mark.parametrize("scheme", ["env", "tcp", "file", "mine"])
def test_a_scheme_has_one_handler(seen: list[tuple[str, timedelta]], scheme: str) -> None:
    assert not seen
    with pytest.raises(UsageError, match=f"for {scheme}://"):
        register_rendezvous_handler(scheme, lambda url: iter(()))


def test_a_url_of_no_known_scheme_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="unknown scheme 'other'"):
        next(rendezvous("other://n01", 0, 1))


def test_arguments_of_wrong_type_are_refused_before_anything_starts() -> None:
    with pytest.raises(UsageError, match="rank='first' is not a number"):
        rendezvous("env://", "first")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="URL as text"):
        rendezvous(5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="does not know colour="):
        rendezvous("tcp://n01:1", colour=timedelta())


def test_there_is_one_item_only(tmp_path: object) -> None:
    met = rendezvous(f"local://{tmp_path}/spot", 0, 1, timeout=timedelta(seconds=5))
    store, rank, world_size = next(met)
    assert (rank, world_size) == (0, 1)
    store.set("a", "b")
    with pytest.raises(UsageError, match="have met"):
        next(met)


def test_a_store_given_needs_rank_and_size() -> None:
    with pytest.raises(UsageError, match="pass rank and world_size"):
        join(store=HashStore(), timeout_s=1.0)
