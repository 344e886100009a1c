"""What every key-value store does: values, numbers, waiting, and several keys at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import distdbg as dist
from tests.parity.promise import promise

SHORT = timedelta(milliseconds=20)


@pytest.fixture(params=["hash", "file", "tcp", "prefix"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """An empty store of each kind."""
    made: Any
    if request.param == "file":
        made = dist.FileStore(str(tmp_path / "store"), 1)
    elif request.param == "tcp":
        made = dist.TCPStore("127.0.0.1", 0, is_master=True)
    elif request.param == "prefix":
        made = dist.PrefixStore("mine", dist.HashStore())
    else:
        made = dist.HashStore()
    made.set_timeout(timedelta(seconds=20))
    yield made
    if request.param in ("file", "tcp"):
        made.close()


@promise("`set` puts a value under a key, `get` returns it as bytes")
def test_set_and_get(store: Any) -> None:
    store.set("first_key", "first_value")
    assert store.get("first_key") == b"first_value"


@promise("`set` of a key that is there replaces its value")
def test_set_replaces(store: Any) -> None:
    store.set("key", "old")
    store.set("key", "new")
    assert store.get("key") == b"new"


@promise("`set` takes bytes as well as text")
def test_set_takes_bytes(store: Any) -> None:
    store.set("key", b"\x00\xff")
    assert store.get("key") == b"\x00\xff"


@promise("`get` of a key that is not there waits for it")
def test_get_waits(store: Any) -> None:
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.append(store.get("late")))
    thread.start()
    store.set("other", "x")
    assert not got
    store.set("late", "here")
    thread.join()
    assert got == [b"here"]


@promise("`get` raises when the store's timeout has passed and the key is not there")
def test_get_times_out(store: Any) -> None:
    store.set_timeout(SHORT)
    begin = time.monotonic()
    with pytest.raises(dist.DistStoreError, match="absent"):
        store.get("absent")
    assert time.monotonic() - begin >= 0.02


@promise("`set_timeout` sets the limit of `get` and of `wait`, which `timeout` shows")
def test_set_timeout(store: Any) -> None:
    store.set_timeout(SHORT)
    assert store.timeout == SHORT
    with pytest.raises(dist.DistStoreError, match="absent"):
        store.wait(["absent"])


@promise("The first `add` makes a counter with that amount, later ones count on and return it")
def test_add(store: Any) -> None:
    assert store.add("first_key", 1) == 1
    assert store.add("first_key", 6) == 7
    assert store.get("first_key") == b"7"


@promise("`add` is atomic between users of the store")
def test_add_is_atomic(store: Any) -> None:
    def count() -> None:
        for _ in range(20):
            store.add("count", 1)

    threads = [threading.Thread(target=count) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.add("count", 0) == 60


@promise("`add` to a key that `set` gave a text that is no number raises")
def test_add_to_text(store: Any) -> None:
    store.set("key", "some text")
    with pytest.raises(RuntimeError, match="key"):
        store.add("key", 1)
    assert store.get("key") == b"some text"


@promise("`compare_set` writes when the value is the expected one, and returns the new value")
def test_compare_set(store: Any) -> None:
    store.set("key", "first_value")
    assert store.compare_set("key", "first_value", "second_value") == b"second_value"
    assert store.get("key") == b"second_value"


@promise("`compare_set` leaves another value alone and returns it")
def test_compare_set_of_another_value(store: Any) -> None:
    store.set("key", "first_value")
    assert store.compare_set("key", "other", "second_value") == b"first_value"
    assert store.get("key") == b"first_value"


@promise("`compare_set` writes a key that is not there when an empty value is expected")
def test_compare_set_of_an_absent_key(store: Any) -> None:
    assert store.compare_set("key", "", "value") == b"value"
    assert store.get("key") == b"value"


@promise("`compare_set` of a key that is not there returns the expected value and writes nothing")
def test_compare_set_expects_an_absent_key(store: Any) -> None:
    assert store.compare_set("key", "expected", "value") == b"expected"
    assert not store.check(["key"])


@promise("`wait` returns when all keys are there")
def test_wait(store: Any) -> None:
    ended = threading.Event()

    def wait() -> None:
        store.wait(["a", "b"])
        ended.set()

    thread = threading.Thread(target=wait)
    thread.start()
    store.set("a", "1")
    assert not ended.is_set()
    store.set("b", "1")
    thread.join()
    assert ended.is_set()


@promise(
    "`wait` with a timeout of its own raises after it",
    here="more",
    note="and names the keys that are missing, torch's all of them",
)
def test_wait_with_a_timeout(store: Any) -> None:
    store.set("there", "1")
    with pytest.raises(dist.DistStoreError, match="bad_key") as caught:
        store.wait(["there", "bad_key"], SHORT)
    assert [key.rpartition("/")[2] for key in caught.value.keys] == ["bad_key"]
    assert store.timeout == timedelta(seconds=20)


@promise("`check` returns at once whether all keys are there")
def test_check(store: Any) -> None:
    store.set("a", "1")
    assert store.check(["a"]) is True
    assert store.check(["a", "b"]) is False


@promise(
    "`delete_key` removes a key and returns whether it was there; not with a `FileStore`",
    here="more",
    note="with a `FileStore` too",
)
def test_delete_key(store: Any) -> None:
    store.set("first_key", "x")
    assert store.delete_key("first_key") is True
    assert store.delete_key("bad_key") is False
    assert not store.check(["first_key"])


@promise(
    "`num_keys` returns the number of keys written by `set` and `add`",
    here="different",
    note="a key that a store of torch makes for itself is not counted",
)
def test_num_keys(store: Any) -> None:
    store.set("first_key", "x")
    store.add("count", 1)
    assert store.num_keys() == 2
    store.delete_key("count")
    assert store.num_keys() == 1


@promise("`append` adds to the end of a value, and makes the key when it is not there")
def test_append(store: Any) -> None:
    store.append("key", "po")
    store.append("key", "tato")
    assert store.get("key") == b"potato"


@promise("`multi_set` writes several keys, `multi_get` returns their values in the order asked for")
def test_multi_set_and_get(store: Any) -> None:
    store.multi_set(["first", "second"], ["po", "tato"])
    assert store.multi_get(["second", "first"]) == [b"tato", b"po"]


@promise("`multi_get` waits for all of its keys")
def test_multi_get_waits(store: Any) -> None:
    store.set_timeout(SHORT)
    store.set("first", "1")
    with pytest.raises(dist.DistStoreError, match="second"):
        store.multi_get(["first", "second"])


@promise("`list_keys` returns the keys that are there")
def test_list_keys(store: Any) -> None:
    store.multi_set(["first", "second"], ["1", "2"])
    assert sorted(store.list_keys()) == ["first", "second"]


@promise(
    "`queue_push` and `queue_pop` keep the order; `queue_len` counts what is left",
    here="more",
    note="with a `FileStore` too",
)
def test_queues(store: Any) -> None:
    store.queue_push("queue", "first")
    store.queue_push("queue", "second")
    assert store.queue_len("queue") == 2
    assert store.queue_pop("queue") == b"first"
    assert store.queue_len("queue") == 1


@promise("`queue_pop` of an empty queue waits for a push")
def test_queue_pop_waits(store: Any) -> None:
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.append(store.queue_pop("queue")))
    thread.start()
    store.queue_push("queue", "late")
    thread.join()
    assert got == [b"late"]


@promise("`queue_pop(block=False)` of an empty queue raises `QueueEmptyError`")
def test_queue_pop_without_waiting(store: Any) -> None:
    with pytest.raises(dist.QueueEmptyError):
        store.queue_pop("queue", block=False)


@promise("`barrier` of a store lets `world_size` users pass together")
def test_store_barrier(store: Any) -> None:
    with pytest.raises(dist.DistStoreError, match="1 of 2"):
        store.barrier("gate", 2, SHORT)
    thread = threading.Thread(target=lambda: store.barrier("gate", 2))
    thread.start()
    store.barrier("gate", 2)
    thread.join()


@promise(
    "`has_extended_api` says that `append`, `multi_get` and `multi_set` are there",
    here="more",
    note="with a `FileStore` too",
)
def test_has_extended_api(store: Any) -> None:
    assert store.has_extended_api() is True


@promise("`clone` returns a store that has the same keys and may be used by another thread")
def test_clone(store: Any) -> None:
    other = store.clone()
    other.set("key", "of the clone")
    assert store.get("key") == b"of the clone"
    if other is not store and hasattr(other, "close"):
        other.close()
