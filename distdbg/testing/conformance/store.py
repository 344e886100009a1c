"""What every Store does. Run it for your own store with pytest:

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def store(self):
            store = MyStore()
            yield store
            store.close()

The fixture gives an empty store to each test. A store that leaves out part of the interface sets
`has_clone` or `has_list_keys` to False.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from distdbg.errors import DistStoreError, QueueEmptyError, UsageError
from distdbg.runtime.store import PrefixStore, Store

_PATIENCE_S = 10.0
_SHORT = timedelta(milliseconds=30)


@contextmanager
def refused(kind: type[Exception], *texts: str) -> Iterator[list[Exception]]:
    """The block must raise `kind`, with each of `texts` in its message; the list gets the error."""
    caught: list[Exception] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    assert caught, f"{kind.__name__} was not raised"
    for text in texts:
        assert text in str(caught[0]), f"{text!r} is not in {str(caught[0])!r}"


class Background:
    """A call in another thread; `result()` gives what it returned or raises what it raised."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._outcome: list[object] = []
        self._error: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], object]) -> None:
        try:
            self._outcome.append(call())
        except BaseException as error:  # noqa: BLE001 - raised again by result()
            self._error.append(error)

    def is_running(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> object:
        self._thread.join(_PATIENCE_S)
        assert not self._thread.is_alive(), "the call still blocks"
        if self._error:
            raise self._error[0]
        return self._outcome[0]


class StoreConformance:
    """Tests that take an empty `store`."""

    has_clone = True
    has_list_keys = True

    # Values ------------------------------------------------------------------------------------

    def test_set_then_get_returns_bytes(self, store: Store) -> None:
        store.set("key", "text")
        assert store.get("key") == b"text"
        store.set("key", b"\x00\xff")
        assert store.get("key") == b"\x00\xff"
        store.set("key", "")
        assert store.get("key") == b""
        assert store.check(["key"])

    def test_keys_may_be_any_text(self, store: Store) -> None:
        for key in ("", "a/b", "ключ", "with space\nand line", "x" * 1000):
            store.set(key, key)
            assert store.get(key) == key.encode()

    def test_large_values_come_back_whole(self, store: Store) -> None:
        value = bytes(range(256)) * 8192  # 2 MiB: more than any socket or pipe holds at once
        store.set("large", value)
        assert store.get("large") == value

    def test_values_other_than_text_and_bytes_are_refused(self, store: Store) -> None:
        with refused(TypeError):
            store.set("key", 3)  # type: ignore[arg-type]
        assert not store.check(["key"])

    def test_one_text_is_not_taken_for_a_list_of_keys(self, store: Store) -> None:
        store.multi_set(["a", "b"], ["1", "2"])
        with refused(TypeError):
            store.check("ab")

    def test_delete_key_says_whether_it_was_there(self, store: Store) -> None:
        store.set("key", "1")
        assert store.delete_key("key") is True
        assert store.delete_key("key") is False
        assert not store.check(["key"])

    def test_check_needs_all_keys(self, store: Store) -> None:
        store.set("a", "1")
        assert store.check(["a"])
        assert not store.check(["a", "b"])
        assert store.check([])

    # Numbers -----------------------------------------------------------------------------------

    def test_add_counts_from_zero_and_is_stored_as_text(self, store: Store) -> None:
        assert store.add("count", 3) == 3
        assert store.add("count", -5) == -2
        assert store.get("count") == b"-2"
        store.set("count", "10")
        assert store.add("count", 1) == 11

    def test_add_to_what_is_no_number_is_refused_and_changes_nothing(self, store: Store) -> None:
        store.set("key", "12ab")
        with refused(UsageError, "key", "12ab"):
            store.add("key", 1)
        assert store.get("key") == b"12ab"
        assert store.add("other", 1) == 1

    def test_add_stays_within_64_bits(self, store: Store) -> None:
        assert store.add("key", 2**63 - 1) == 2**63 - 1
        with refused(UsageError, "64 bits"):
            store.add("key", 1)
        assert store.get("key") == str(2**63 - 1).encode()

    # Changes that depend on what is there --------------------------------------------------------

    def test_compare_set_returns_what_is_there_afterwards(self, store: Store) -> None:
        assert store.compare_set("key", "", "first") == b"first"
        assert store.compare_set("key", "first", "second") == b"second"
        assert store.compare_set("key", "first", "third") == b"second"
        assert store.compare_set("key", "", "third") == b"second"
        assert store.get("key") == b"second"

    def test_compare_set_of_an_absent_key_returns_the_expected(self, store: Store) -> None:
        assert store.compare_set("key", "old", "new") == b"old"
        assert not store.check(["key"])

    def test_append_creates_and_extends(self, store: Store) -> None:
        store.append("key", "one")
        store.append("key", b"+two")
        assert store.get("key") == b"one+two"

    # Several keys ------------------------------------------------------------------------------

    def test_multi_set_and_multi_get_keep_the_order(self, store: Store) -> None:
        store.multi_set(["a", "b", "c"], ["1", b"2", "3"])
        assert store.multi_get(["c", "a"]) == [b"3", b"1"]
        assert store.multi_get([]) == []

    def test_multi_set_needs_as_many_values_as_keys(self, store: Store) -> None:
        with refused(UsageError, "2 keys", "1 value"):
            store.multi_set(["a", "b"], ["1"])
        assert not store.check(["a"])

    def test_only_the_users_keys_are_listed_and_counted(self, store: Store) -> None:
        if not self.has_list_keys:
            return
        store.barrier("gate", 1)
        store.queue_push("queue", "1")
        store.multi_set(["a", "b"], ["1", "2"])
        assert sorted(store.list_keys()) == ["a", "b"]
        assert store.num_keys() == 2

    # Waiting -----------------------------------------------------------------------------------

    def test_get_waits_for_the_key(self, store: Store) -> None:
        waiting = Background(lambda: store.get("late"))
        store.set("other", "1")  # the blocked get must not keep others out
        assert waiting.is_running()
        store.set("late", "now")
        assert waiting.result() == b"now"

    def test_wait_returns_when_the_last_key_comes(self, store: Store) -> None:
        waiting = Background(lambda: store.wait(["a", "b"]))
        store.set("b", "1")
        assert waiting.is_running()
        store.set("a", "1")
        assert waiting.result() is None

    def test_a_timeout_names_the_missing_keys_only(self, store: Store) -> None:
        store.set("there", "1")
        begin = time.monotonic()
        with refused(DistStoreError, "missing1", "missing2") as caught:
            store.wait(["missing1", "there", "missing2"], _SHORT)
        assert time.monotonic() - begin >= _SHORT.total_seconds()
        assert isinstance(caught[0], DistStoreError)
        # A PrefixStore names the whole keys.
        names = [key.rpartition("/")[2] for key in caught[0].keys]
        assert names == ["missing1", "missing2"]
        assert "'there'" not in str(caught[0])

    def test_set_timeout_limits_get(self, store: Store) -> None:
        store.set_timeout(_SHORT)
        assert store.timeout == _SHORT
        with refused(DistStoreError, "missing"):
            store.get("missing")
        store.set_timeout(0.05)
        assert store.timeout == timedelta(seconds=0.05)

    def test_a_timeout_leaves_the_store_usable(self, store: Store) -> None:
        with refused(DistStoreError):
            store.wait(["missing"], _SHORT)
        store.set("missing", "here")
        store.wait(["missing"], _SHORT)

    def test_nothing_to_wait_for_returns_at_once(self, store: Store) -> None:
        store.wait([], _SHORT)

    # Queues ------------------------------------------------------------------------------------

    def test_a_queue_is_first_in_first_out(self, store: Store) -> None:
        store.queue_push("queue", "1")
        store.queue_push("queue", b"2")
        assert store.queue_len("queue") == 2
        assert store.queue_pop("queue") == b"1"
        assert store.queue_pop("queue", False) == b"2"
        assert store.queue_len("queue") == 0

    def test_an_empty_queue_is_said_so(self, store: Store) -> None:
        with refused(QueueEmptyError, "queue"):
            store.queue_pop("queue", block=False)
        store.set_timeout(_SHORT)
        with refused(DistStoreError, "queue"):
            store.queue_pop("queue")

    def test_queue_pop_waits_for_a_push(self, store: Store) -> None:
        waiting = Background(lambda: store.queue_pop("queue"))
        store.queue_push("queue", "late")
        assert waiting.result() == b"late"

    def test_each_queued_value_is_popped_once(self, store: Store) -> None:
        poppers = [
            Background(lambda: [store.queue_pop("queue") for _ in range(10)]) for _ in range(3)
        ]
        for number in range(30):
            store.queue_push("queue", str(number))
        popped = [value for popper in poppers for value in popper.result()]  # type: ignore[attr-defined]
        assert sorted(popped, key=int) == [str(number).encode() for number in range(30)]

    # Barriers ----------------------------------------------------------------------------------

    def test_a_barrier_opens_when_all_have_come_again_and_again(self, store: Store) -> None:
        for _ in range(3):
            first = Background(lambda: store.barrier("gate", 2))
            store.barrier("gate", 2)
            first.result()

    def test_a_barrier_says_how_many_came_and_forgets_who_left(self, store: Store) -> None:
        for _ in range(2):  # a second try is not counted on top of the first
            with refused(DistStoreError, "1 of 2", "gate"):
                store.barrier("gate", 2, _SHORT)
        other = Background(lambda: store.barrier("gate", 2))
        store.barrier("gate", 2)
        other.result()

    # Several users -----------------------------------------------------------------------------

    def test_no_add_is_lost_between_threads(self, store: Store) -> None:
        def count() -> None:
            for _ in range(25):
                store.add("count", 1)

        for thread in [Background(count) for _ in range(4)]:
            thread.result()
        assert store.add("count", 0) == 100

    def test_no_append_is_lost_between_threads(self, store: Store) -> None:
        def write(letter: str) -> None:
            for _ in range(10):
                store.append("log", letter)

        for thread in [Background(lambda x=x: write(x)) for x in "abcd"]:  # type: ignore[misc]
            thread.result()
        assert sorted(store.get("log")) == sorted(b"abcd" * 10)

    def test_one_of_many_wins_compare_set(self, store: Store) -> None:
        names = [f"rank{rank}" for rank in range(4)]
        racers = [Background(lambda x=x: store.compare_set("leader", "", x)) for x in names]  # type: ignore[misc]
        answers = {racer.result() for racer in racers}
        assert answers == {store.get("leader")}

    def test_a_clone_sees_the_same_keys(self, store: Store) -> None:
        if not self.has_clone:
            return
        store.set_timeout(7.0)
        other = store.clone()
        store.set("key", "1")
        assert other.get("key") == b"1"
        assert other.timeout == timedelta(seconds=7)
        if other is not store:
            other.close()
            assert store.get("key") == b"1"

    def test_prefixes_keep_keys_apart(self, store: Store) -> None:
        left, right = PrefixStore("left", store), PrefixStore("right", store)
        left.set("key", "1")
        right.set("key", "2")
        assert (left.get("key"), right.get("key")) == (b"1", b"2")
        assert store.get("left/key") == b"1"
        if self.has_list_keys:
            assert left.list_keys() == ["key"]
            assert left.num_keys() == 1
