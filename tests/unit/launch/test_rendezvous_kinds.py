"""Which rendezvous is made from which options; what --rdzv-conf may say; notes of launchers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from distdbg.errors import ConfigError, UsageError
from distdbg.launch.rendezvous import registry
from distdbg.launch.rendezvous.notes import LauncherNote, Notes
from distdbg.launch.rendezvous.reach import is_here, is_name, own_address
from distdbg.launch.rendezvous.registry import make_rendezvous, register_rendezvous_handler
from distdbg.launch.rendezvous.round import LauncherRound, NodeFacts
from distdbg.launch.rendezvous.settings import RendezvousSettings
from distdbg.launch.rendezvous.shared import SharedRendezvous
from distdbg.launch.rendezvous.solo import SoloRendezvous
from distdbg.runtime.store import HashStore


def options(**given: Any) -> Any:
    return SimpleNamespace(
        **{
            "rdzv_backend": "c10d",
            "rdzv_endpoint": "n01:29400",
            "rdzv_host": "n01",
            "rdzv_port": 29400,
            "rdzv_id": "none",
            "rdzv_conf": {},
            "min_nodes": 1,
            "max_nodes": 1,
            "node_rank": 0,
            "local_addr": None,
            "standalone": False,
            **given,
        }
    )


@pytest.fixture
def own_kinds() -> Iterator[None]:
    before = dict(registry._makers)
    yield
    registry._makers.clear()
    registry._makers.update(before)


# ---------------------------------------------------------------------------------------- kinds


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({}, SoloRendezvous),
        ({"rdzv_backend": "static"}, SoloRendezvous),
        ({"max_nodes": 4}, SharedRendezvous),
        ({"max_nodes": 4, "rdzv_backend": "C10d "}, SharedRendezvous),
        ({"max_nodes": 4, "standalone": True}, SoloRendezvous),
        ({"rdzv_backend": "static", "min_nodes": 2, "max_nodes": 2}, SharedRendezvous),
    ],
)
def test_options_choose_the_kind_and_nothing_is_opened(given: dict[str, Any], kind: type) -> None:
    rendezvous = make_rendezvous(options(**given))
    assert type(rendezvous) is kind
    rendezvous.shutdown()


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"rdzv_backend": "etcd"}, "etcd is not supported"),
        ({"rdzv_backend": "etcd-v2"}, "etcd-v2 is not supported"),
        ({"rdzv_backend": "zookeeper"}, "there is no rendezvous backend 'zookeeper'"),
        ({"max_nodes": 2, "rdzv_port": 0}, "has no port that other launchers could know"),
        (
            {"rdzv_backend": "static", "max_nodes": 2},
            "needs an elastic rendezvous",
        ),
        (
            {"rdzv_backend": "static", "min_nodes": 2, "max_nodes": 2, "node_rank": 2},
            "--node-rank 2 is not one of 2 hosts",
        ),
    ],
)
def test_what_cannot_work_is_refused(given: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError) as raised:
        make_rendezvous(options(**given))
    assert what in raised.value.what


def test_an_unknown_backend_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError) as raised:
        make_rendezvous(options(rdzv_backend="zookeeper"))
    assert raised.value.details == ["known: c10d, static"]


def test_etcd_is_answered_with_what_to_use() -> None:
    with pytest.raises(UsageError) as raised:
        make_rendezvous(options(rdzv_backend="etcd"))
    assert "--rdzv-backend c10d" in str(raised.value.hint)


@pytest.mark.usefixtures("own_kinds")
def test_a_registered_backend_gets_the_options() -> None:
    given = options(rdzv_backend="Mine", rdzv_endpoint="anything at all")
    register_rendezvous_handler("mine", lambda asked: asked)  # type: ignore[arg-type,return-value]
    assert make_rendezvous(given) is given
    with pytest.raises(UsageError, match="there is a rendezvous backend 'mine' already"):
        register_rendezvous_handler("mine", lambda asked: asked)  # type: ignore[arg-type,return-value]


@pytest.mark.usefixtures("own_kinds")
def test_a_user_may_bring_etcd() -> None:
    register_rendezvous_handler("etcd", lambda asked: asked)  # type: ignore[arg-type,return-value]
    given = options(rdzv_backend="etcd")
    assert make_rendezvous(given) is given


def test_a_backend_can_be_named_by_module_and_function(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("own_rendezvous")
    module.__dict__["make"] = lambda asked: asked
    monkeypatch.setitem(sys.modules, "own_rendezvous", module)
    given = options(rdzv_backend="own_rendezvous:make")
    assert make_rendezvous(given) is given


@pytest.mark.parametrize(
    "name", ["no_such_module_here:make", "os:no_such_function", ":", "os:name"]
)
def test_a_backend_that_cannot_be_loaded_is_named(name: str) -> None:
    with pytest.raises(ConfigError) as raised:
        make_rendezvous(options(rdzv_backend=name))
    assert repr(name) in raised.value.what


@pytest.mark.parametrize("name", ["", "a:b", "static"])
def test_names_that_mean_something_else_are_refused(name: str) -> None:
    with pytest.raises(UsageError):
        register_rendezvous_handler(name, lambda asked: asked)  # type: ignore[arg-type,return-value]


# ----------------------------------------------------------------------------------- --rdzv-conf


def test_the_defaults_are_those_of_torchrun() -> None:
    found = RendezvousSettings.read({})
    assert (found.join_timeout_s, found.last_call_timeout_s, found.close_timeout_s) == (600, 30, 30)
    assert (found.keep_alive_interval_s, found.keep_alive_max_attempt) == (5, 3)
    assert (found.read_timeout_s, found.is_host) == (60, None)
    assert (found.silence_s, found.call_timeout_s) == (15, 15)


def test_every_key_has_its_setting() -> None:
    found = RendezvousSettings.read(
        {
            "timeout": "1.5",
            "last_call_timeout": "2",
            "close_timeout": "3",
            "read_timeout": "4",
            "keep_alive_interval": "0.5",
            "keep_alive_max_attempt": "6",
            "heartbeat_timeout": "7",
            "is_host": "True",
            "store_type": "tcp",
            "rank": "0",
        }
    )
    assert found == RendezvousSettings(
        join_timeout_s=1.5,
        last_call_timeout_s=2,
        close_timeout_s=3,
        read_timeout_s=4,
        keep_alive_interval_s=0.5,
        keep_alive_max_attempt=6,
        is_host=True,
    )


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("join_timeout", "0", "join_timeout=0 is not a number above 0"),
        ("join_timeout", "nan", "join_timeout=nan is not a number above 0"),
        ("last_call_timeout", "soon", "last_call_timeout=soon is not a number above 0"),
        ("keep_alive_max_attempt", "2.5", "keep_alive_max_attempt=2.5 is not a whole number"),
        ("is_host", "perhaps", "is_host=perhaps is neither true nor false"),
        ("store_type", "file", "store_type=file is not supported"),
        ("jion_timeout", "3", "knows no 'jion_timeout'"),
    ],
)
def test_a_wrong_key_or_value_is_named(key: str, value: str, what: str) -> None:
    with pytest.raises(UsageError) as raised:
        RendezvousSettings.read({key: value})
    assert what in raised.value.what


# ------------------------------------------------------------------------------------ addresses


def test_addresses_of_this_host_are_known() -> None:
    assert is_here("127.0.0.9")
    assert is_here("localhost")
    assert own_address("127.0.0.9") == "127.0.0.9"
    assert not is_here("192.0.2.1")  # reserved for documentation
    assert not is_here("no-such-host.invalid")


@pytest.mark.parametrize(
    ("host", "is_one"),
    [
        ("n01", True),
        ("localhost", False),
        ("10.0.0.1", False),
        ("::1", False),
        ("fe80::1%eth0", False),
    ],
)
def test_names_are_told_from_addresses(host: str, is_one: bool) -> None:
    assert is_name(host) is is_one


# ---------------------------------------------------------------------------------------- notes


def round_of(store: HashStore, node_rank: int) -> LauncherRound:
    return LauncherRound(
        number=0,
        node_rank=node_rank,
        nodes=tuple(
            NodeFacts(name=name, addr="127.0.0.1", host=name, nproc=2) for name in ("a", "b")
        ),
        store=store,
        store_host="127.0.0.1",
        store_port=1,
        prefix="none/0",
        serves=node_rank == 0,
    )


def test_ranks_are_numbered_node_by_node() -> None:
    found = [round_of(HashStore(), node_rank) for node_rank in (0, 1)]
    assert [(one.first_rank, one.world_size) for one in found] == [(0, 4), (2, 4)]


def test_a_note_is_read_by_the_others() -> None:
    store = HashStore()
    mine, yours = Notes(round_of(store, 0)), Notes(round_of(store, 1))
    assert yours.read() == {}
    note = LauncherNote(kind="failed", what="rank 1 exited with code 3")
    mine.write(note)
    assert yours.read() == {"a": note}
    yours.write(LauncherNote(kind="finished"))
    assert mine.read() == {"a": note, "b": LauncherNote(kind="finished")}
    assert mine.left == frozenset()
    yours.write_left([2])
    yours.write_left([3])
    mine.read()
    assert mine.left == {2, 3}


def test_a_note_that_is_just_being_written_is_read_later() -> None:
    store = HashStore()
    mine, yours = Notes(round_of(store, 0)), Notes(round_of(store, 1))
    number = store.add("notes", 1)
    yours.write(LauncherNote(kind="finished"))
    assert mine.read() == {"b": LauncherNote(kind="finished")}
    store.set(f"note/{number}", '{"left": [0]}')
    mine.read()
    assert mine.left == {0}
    store.set(f"note/{store.add('notes', 1)}", "of another version")
    assert mine.read() == {"b": LauncherNote(kind="finished")}


def test_a_store_that_is_gone_leaves_the_notes_as_they_were() -> None:
    from distdbg.runtime.store import TCPStore

    store: Any = TCPStore("127.0.0.1", 0, is_master=True)
    notes = Notes(round_of(store, 0))
    notes.write(LauncherNote(kind="finished"))
    assert list(notes.read()) == ["a"]
    store.close()
    notes.write(LauncherNote(kind="failed"))
    assert notes.read() == {"a": LauncherNote(kind="finished")}


@pytest.mark.parametrize("text", ["", "[]", '{"kind": "else"}', "{}"])
def test_what_is_no_note_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        LauncherNote.from_json(text)
