"""Every exception class: pickles with its facts, has an exit code, and is in the reference."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args, get_type_hints

import pytest

from distdbg import errors


def error_classes() -> list[type[errors.DistError]]:
    return [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.DistError)
    ]


def with_facts(cls: type[errors.DistError]) -> errors.DistError:
    """An instance whose every fact differs from its default."""
    examples = {
        int: 7,
        float: 1.5,
        str: "dp",
        str | None: "act",
        Iterable[int]: [0, 3],
        Iterable[str]: ["key"],
        Sequence[str]: ["more"],
        Sequence[Mapping[str, Any]]: [{"ranks": [0], "what": "float32[4]"}],
    }
    return cls("all_reduce #7 failed", **{k: examples[v] for k, v in keywords_of(cls).items()})


def keywords_of(cls: type[errors.DistError]) -> dict[str, Any]:
    """With their types; those that a class hands on are in a TypedDict."""
    hints = get_type_hints(cls.__init__)
    found = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            found[name] = hints[name]
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            found |= get_type_hints(get_args(hints[name])[0])
    return found


@pytest.mark.parametrize("cls", error_classes(), ids=lambda cls: cls.__name__)
def test_each_keyword_of_an_error_is_an_attribute(cls: type[errors.DistError]) -> None:
    error = with_facts(cls)
    assert {"details", "hint"} <= set(keywords_of(cls)) <= set(vars(error))
    with pytest.raises(TypeError, match="no_such_fact"):
        cls("all_reduce #7 failed", no_such_fact=1)


@pytest.mark.parametrize("cls", error_classes(), ids=lambda cls: cls.__name__)
def test_an_error_pickles_with_all_its_facts(cls: type[errors.DistError]) -> None:
    error = with_facts(cls)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert vars(copy) == vars(error)
    assert str(copy) == str(error)


@pytest.mark.parametrize("cls", error_classes(), ids=lambda cls: cls.__name__)
def test_an_error_begins_with_a_line_that_stands_alone(cls: type[errors.DistError]) -> None:
    first, *rest = str(with_facts(cls)).splitlines()
    assert first == "all_reduce #7 failed"
    assert rest == ["  more", "  hint: act"]


@pytest.mark.parametrize("cls", error_classes(), ids=lambda cls: cls.__name__)
def test_an_error_has_an_exit_code_that_a_shell_can_tell_from_success(
    cls: type[errors.DistError],
) -> None:
    assert 2 <= cls.exit_code <= 125
    assert cls.__doc__
