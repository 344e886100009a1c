"""The same calls on our stores and on torch's give the same answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import distdbg as ours

theirs = pytest.importorskip("torch.distributed")

SHORT = timedelta(milliseconds=30)


@pytest.fixture(scope="module", autouse=True)
def torch_is_warm() -> None:
    # Its first server leaves a pipe of libuv open for good, which is not a leak of any one test.
    theirs.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)


@pytest.fixture(params=["HashStore", "TCPStore", "FileStore", "PrefixStore"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Any]]:
    def make(dist: Any, name: str) -> Any:
        match request.param:
            case "TCPStore":
                return dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
            case "FileStore":
                return dist.FileStore(str(tmp_path / name), -1)
            case "PrefixStore":
                return dist.PrefixStore("prefix", dist.HashStore())
            case _:
                return dist.HashStore()

    stores = [make(ours, "ours"), make(theirs, "theirs")]
    yield stores
    stores[0].close()
    stores.clear()  # pytest keeps the list for a while; torch's server ends with its store


def answer(call: Callable[[Any], object], store: Any) -> object:
    """What came out; errors are compared by torch's name for them."""
    try:
        return call(store)
    except (ours.QueueEmptyError, theirs.QueueEmptyError):
        return "QueueEmptyError"
    except (ours.DistStoreError, theirs.DistStoreError):
        return "DistStoreError"
    except RuntimeError:
        # FileStore of torch raises a bare RuntimeError at a timeout; ours is one too, and says more.
        return "DistStoreError"


PROGRAM: list[Callable[[Any], object]] = [
    lambda s: s.set("key", "text"),
    lambda s: s.get("key"),
    lambda s: s.set("bytes", b"\xff\x00"),
    lambda s: s.get("bytes"),
    lambda s: s.set("empty", ""),
    lambda s: s.get("empty"),
    lambda s: s.check(["empty"]),
    lambda s: s.check(["empty", "missing"]),
    lambda s: s.check([]),
    lambda s: s.compare_set("new", "", "first"),
    lambda s: s.compare_set("new", "first", "second"),
    lambda s: s.compare_set("new", "first", "third"),
    lambda s: s.compare_set("new", "", "third"),
    lambda s: s.compare_set("absent", "expected", "third"),
    lambda s: s.check(["absent"]),
    lambda s: s.add("count", 3),
    lambda s: s.add("count", -5),
    lambda s: s.get("count"),
    lambda s: s.set("count", "10"),
    lambda s: s.add("count", 1),
    lambda s: s.append("log", "one"),
    lambda s: s.append("log", "two"),
    lambda s: s.get("log"),
    lambda s: s.multi_set(["a", "b"], ["1", "2"]),
    lambda s: s.multi_get(["b", "a"]),
    lambda s: s.delete_key("a"),
    lambda s: s.check(["a"]),
    lambda s: s.set_timeout(SHORT),
    lambda s: s.timeout,
    lambda s: s.get("missing"),
    lambda s: s.wait(["missing", "b"]),
    lambda s: s.wait(["missing"], timedelta(milliseconds=5)),
    lambda s: s.wait(["b"]),
    lambda s: s.wait([]),
    lambda s: s.multi_get(["b", "missing"]),
    lambda s: s.barrier("gate", 1),
    lambda s: s.barrier("gate2", 2, SHORT),
    lambda s: s.clone().get("key"),
]

QUEUES: list[Callable[[Any], object]] = [
    lambda s: s.queue_push("queue", "1"),
    lambda s: s.queue_push("queue", "2"),
    lambda s: s.queue_len("queue"),
    lambda s: s.check(["queue"]),
    lambda s: s.wait(["queue"]),
    lambda s: s.delete_key("queue"),
    lambda s: s.queue_pop("queue"),
    lambda s: s.queue_pop("queue", False),
    lambda s: s.queue_pop("queue", False),
    lambda s: s.queue_pop("queue", block=True),
    lambda s: s.queue_len("queue"),
    lambda s: s.has_extended_api(),
]


@pytest.mark.slow
def test_every_call_answers_as_torch_does(pair: list[Any]) -> None:
    for number, call in enumerate(PROGRAM):
        got, expected = (answer(call, store) for store in pair)
        assert got == expected, f"call {number} of PROGRAM"


# torch's FileStore has no queues.
@pytest.mark.parametrize("pair", ["HashStore", "TCPStore", "PrefixStore"], indirect=True)
def test_queues_answer_as_torch_does(pair: list[Any]) -> None:
    for store in pair:
        store.set_timeout(SHORT)
    for number, call in enumerate(QUEUES):
        got, expected = (answer(call, store) for store in pair)
        assert got == expected, f"call {number} of QUEUES"


def test_attributes_are_those_of_torch(tmp_path: Path) -> None:
    file = str(tmp_path / "store")
    own = ours.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    other = theirs.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    assert (own.host, own.libuvBackend) == (other.host, other.libuvBackend)
    assert own.timeout == other.timeout
    own.close()
    prefixed = ours.PrefixStore("p", ours.HashStore())
    assert isinstance(prefixed.underlying_store, ours.HashStore)
    with_path = ours.FileStore(file)
    assert with_path.path == file
    with_path.close()
    for name in ("Store", "TCPStore", "FileStore", "HashStore", "PrefixStore"):
        public = {each for each in dir(getattr(theirs, name)) if not each.startswith("_")}
        missing = public - set(dir(getattr(ours, name)))
        assert not missing, f"{name} lacks {sorted(missing)}"
