"""What is kept of the variables of frames that an error came through."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from distdbg.record.error_file import read_error_file, write_error_file
from distdbg.record.values import say_value, values_at

BATCHES = 15


class Loader:
    """Fails behind its last batch."""

    def __init__(self) -> None:
        self.items = [1, 2]
        self.secret = "password"

    def __getattribute__(self, name: str) -> object:
        if name == "trap":
            raise AssertionError("code of the program ran")
        return object.__getattribute__(self, name)

    def load(self, at: int) -> int:
        name, rate = "shard", 0.25
        found = self.items[at]
        return found + BATCHES + len(name) + int(rate)


def failed() -> BaseException:
    with pytest.raises(IndexError) as caught:
        Loader().load(2)
    return caught.value


def test_numbers_and_sizes_are_kept_and_no_texts() -> None:
    [inner] = values_at(failed())  # the outer frame has none
    assert inner["file"] == __file__
    assert inner["values"] == {
        "at": "= 2",
        "rate": "= 0.25",
        "self.items": "is 2 long",
        "BATCHES": "= 15",
    }


def read(path: str, file: Path, token: str, log_file: str) -> int:
    key, checkpoint = "sk/live.abc", "postgres://ada:pw@host/db"
    return len(path) // (len(str(file)) * 0 + len(token + log_file + key + checkpoint) * 0)


def test_names_of_files_are_kept_by_the_name_of_their_variable() -> None:
    name = "/data/" + "x" * 80 + "/part-014.npz"
    with pytest.raises(ZeroDivisionError) as caught:
        read("clicks/part-014.npz", Path(name), "sk-live/abc", "two words")
    [inner, *_] = values_at(caught.value)
    assert inner["values"] == {
        "path": "= 'clicks/part-014.npz'",
        "file": f"= '...{name[-53:]}'",
    }


def test_settings_are_kept_as_fields_of_objects_are() -> None:
    args = Namespace(batch=4, name="x")
    config = SimpleNamespace(rounds=8)
    with pytest.raises(ZeroDivisionError) as caught:
        print(args.batch // (config.rounds * 0))
    [inner, *_] = values_at(caught.value)
    assert inner["values"] == {"args.batch": "= 4", "config.rounds": "= 8"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "= None"),
        (True, "= True"),
        (2**64, ""),
        (float("nan"), "= nan"),
        (1 / 3, "= 0.333333"),
        ("token", ""),
        (b"bytes", ""),
        ({"a": 1}, "is 1 long"),
        (range(3), "is 3 long"),
        (np.float32(2), "= 2"),
        (np.int64(7), "= 7"),
        (np.str_("name"), ""),
        (np.zeros((4, 8), np.float32), "float32[4, 8]"),
        (np.array(1.0), "float64[]"),
        (Loader(), ""),
        (type("ndarray", (), {"__module__": "numpy", "shape": 3, "dtype": "x"})(), ""),
    ],
)
def test_a_value_is_said_by_its_type(value: object, text: str) -> None:
    assert say_value(value) == text


@dataclass(slots=True)
class Slotted:
    cell: int
    unused: int = 3


class Named(NamedTuple):
    power: float


def test_attributes_that_the_code_uses_are_kept_of_each_kind_of_object() -> None:
    def read(heater: Slotted, lamp: Named) -> float:
        empty: list[float] = []
        return heater.cell + lamp.power + empty[0]

    with pytest.raises(IndexError) as caught:
        read(Slotted(cell=240), Named(0.5))
    assert values_at(caught.value)[0]["values"] == {
        "empty": "is 0 long",
        "heater.cell": "= 240",
        "lamp.power": "= 0.5",
    }


def test_they_are_read_from_the_error_file(tmp_path: Path) -> None:
    path = tmp_path / "error.json"
    assert write_error_file(failed(), path)
    facts = read_error_file(path)
    assert facts is not None
    assert facts.values[__file__, Loader.load.__code__.co_firstlineno + 2]["at"] == "= 2"
    found = json.loads(path.read_text())
    found["distdbg"]["values"] = [3, {"file": 1, "line": 2, "values": {}}, {"file": "a"}, None]
    path.write_text(json.dumps(found))
    facts = read_error_file(path)
    assert facts is not None
    assert facts.values == {}
    inner, outer = {"each": "= 3", "at": "= 1"}, {"each": "= 0", "n": "= 9"}
    frames = [{"file": "a.py", "line": 2, "values": known} for known in (inner, outer)]
    found["distdbg"]["values"] = frames
    path.write_text(json.dumps(found))
    facts = read_error_file(path)
    assert facts is not None
    assert facts.values == {("a.py", 2): {"each": "= 3", "at": "= 1", "n": "= 9"}}


def configured(config: dict[object, object]) -> None:
    table = {"rate": 0.5}
    raise ValueError(config["rate"], config["name"], table["rate"])


def test_numbers_of_dicts_are_kept_where_the_code_names_their_keys() -> None:
    config: dict[object, object] = {"rate": 0.25, "name": "secret", "anna": 7, 3: 4, "on": True}
    with pytest.raises(ValueError, match="secret") as caught:
        configured(config)
    values = values_at(caught.value)[0]["values"]
    assert values['config["rate"]'] == "= 0.25"
    assert values['table["rate"]'] == "= 0.5"
    assert values.pop("the keys of config").startswith("in order ")
    assert not [name for name in values if "anna" in name or "name" in name or "on" in name[6:]]
    assert "anna" not in str(values)


def ordered(params: dict[object, object], names: set[str], place: tuple[object, ...]) -> None:
    raise ValueError(params, names, place)


def shown(*given: Any) -> dict[str, str]:
    with pytest.raises(ValueError) as caught:
        ordered(*given)
    return dict(values_at(caught.value)[0]["values"])


def test_of_a_dict_and_a_set_it_is_kept_in_which_order_a_loop_goes_over_them() -> None:
    params = {"w1": 0, "b1": 0, "w2": 0}
    one = shown(params, {"a"}, (0, 1))
    other = shown(dict(reversed(params.items())), {"a"}, (0, "x"))
    order, _, which = one["the keys of params"].removeprefix("in order ").partition(" of ")
    assert order not in other["the keys of params"]
    assert other["the keys of params"].endswith(f" of {which}")
    assert not shown({"v": 0, "b1": 0, "w2": 0}, {"a"}, ())["the keys of params"].endswith(which)
    assert "the keys of names" not in one  # one element has no order
    assert "the keys of names" in shown(params, {"a", "b"}, ())
    assert "the keys of params" not in shown({b"x": 0, b"y": 1}, {"a"}, ())
    assert (one["place"], other["place"]) == ("= (0, 1)", "is 2 long")


def test_large_dicts_are_data() -> None:
    config: dict[object, object] = {"rate": 1, "name": ""} | dict.fromkeys(range(30), 1)
    with pytest.raises(ValueError) as caught:
        configured(config)
    assert not [name for name in values_at(caught.value)[0]["values"] if name.startswith("config[")]


class Lazy:
    """As an unbound proxy: to ask for its class is an error."""

    @property
    def __class__(self) -> type:  # type: ignore[override]  # what proxies do
        raise RuntimeError("unbound")


def test_an_object_that_answers_with_errors_costs_values_and_not_the_error_file() -> None:
    def fail(lazy: object, number: int) -> None:
        raise ValueError(lazy is None, number)

    with pytest.raises(ValueError) as caught:
        fail(Lazy(), 3)
    assert isinstance(values_at(caught.value), list)
    assert "the keys of params" not in shown({"x" * 300: 0, "y": 1}, {"a"}, ())
    assert "the keys of params" not in shown({10**5000: 0, 1: 1}, {"a"}, ())
