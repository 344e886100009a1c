"""A property that notes what was set last, as the short way of torch's ops puts it before torch's options."""

from __future__ import annotations

import pytest

from distdbg.native import NotedOption


class Counted:
    """A value that counts how often it is hashed, which of torch's reduce ops takes long."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.hashed = 0

    def __hash__(self) -> int:
        self.hashed += 1
        return self.code

    def __eq__(self, other: object) -> bool:
        return self is other


def make_options(is_flag: bool = False) -> tuple[type, list[object]]:
    """A class like torch's options, and what was read from it."""
    read: list[object] = []

    class Options:
        def __init__(self) -> None:
            self.kept: object = False

        @property
        def value(self) -> object:
            read.append(self.kept)
            return self.kept

        @value.setter
        def value(self, value: object) -> None:
            if value == "no value":
                raise TypeError("no value")
            self.kept = bool(value) if is_flag else value

    Options.value = NotedOption(vars(Options)["value"], is_flag)  # type: ignore[assignment]  # as the tap does
    return Options, read


def test_what_was_set_last_is_known_without_reading_it() -> None:
    options_class, read = make_options()
    options = options_class()
    options.value = Counted(3)
    assert vars(options_class)["value"].code_of(options) == 3
    assert read == []


def test_a_value_that_is_set_again_is_hashed_once() -> None:
    options_class, _ = make_options()
    value = Counted(2)
    for _ in range(3):
        options = options_class()
        options.value = value
        assert vars(options_class)["value"].code_of(options) == 2
    assert value.hashed == 1


def test_other_options_are_read() -> None:
    options_class, read = make_options()
    first, second = options_class(), options_class()
    first.value = 5
    second.value = 6
    assert vars(options_class)["value"].code_of(first) == 5
    assert read == [5]
    assert vars(options_class)["value"].code_of(second) == 6


@pytest.mark.parametrize("value", [None, "", 2, [1]])
def test_a_flag_that_is_no_bool_is_read_as_torch_has_understood_it(value: object) -> None:
    options_class, read = make_options(is_flag=True)
    options = options_class()
    options.value = True
    options.value = value
    assert vars(options_class)["value"].code_of(options) == int(bool(value))
    assert read == [bool(value)]


def test_a_flag_is_known_by_its_number() -> None:
    options_class, read = make_options(is_flag=True)
    for value in (True, False):
        options = options_class()
        options.value = value
        assert vars(options_class)["value"].code_of(options) == int(value)
    assert read == []


def test_it_knows_whether_it_was_ever_set() -> None:
    options_class, _ = make_options()
    noted = vars(options_class)["value"]
    assert not noted.was_set
    with pytest.raises(TypeError, match="no value"):
        options_class().value = "no value"
    assert not noted.was_set
    options_class().value = 1
    assert noted.was_set


def test_it_is_read_and_kept_as_the_property_was() -> None:
    options_class, _ = make_options()
    options = options_class()
    options.value = "word"
    assert options.value == "word"
    assert options_class.value is vars(options_class)["value"]
    with pytest.raises(AttributeError, match="deleted"):
        del options.value
