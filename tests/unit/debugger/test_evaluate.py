from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from distdbg.debugger.evaluate import MAX_TEXT, evaluate, show


def ask(expression: str, **names: Any) -> dict[str, str]:
    locals().update(names)
    return evaluate(expression, sys._getframe(0))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        ("a", "'a'"),
        (np.zeros((2, 0)), "float64[2, 0]"),
        (np.float32(1.5), "float32[] 1.5"),
        (np.arange(3), "int64[3] [0, 1, 2]"),
        (np.arange(12.0).reshape(3, 4), "float64[3, 4] [0, 1, 2, ..., 9, 10, 11]"),
        (np.array([True, False]), "bool[2] [True, False]"),
        (np.array([0.1, np.nan, np.inf]), "float64[3] [0.1, nan, inf]"),
    ],
)
def test_values_are_shown_shortly(value: object, text: str) -> None:
    assert show(value) == text


def test_an_array_of_any_size_is_shown_without_a_copy() -> None:
    huge = np.broadcast_to(np.float32(2), (1 << 30, 1 << 10))
    assert show(huge) == "float32[1073741824, 1024] [2, 2, 2, ..., 2, 2, 2]"


def test_a_long_value_is_cut() -> None:
    assert len(show("x" * 10**6)) <= MAX_TEXT
    assert len(show([list(range(1000))] * 1000)) <= MAX_TEXT


def test_names_of_the_frame_are_known() -> None:
    assert ask("expression") == {"value": "'expression'", "type": "str"}
    assert ask("np.ones(1)")["type"] == "numpy.ndarray"


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("exit(3)", "SystemExit: 3"),
        ("x = 3", "an expression is needed"),
        ("", "an expression is needed"),
        ("\0", "an expression is needed"),
    ],
)
def test_whatever_goes_wrong_is_an_answer(expression: str, text: str) -> None:
    assert text in ask(expression)["error"]


def test_a_value_that_cannot_be_shown_is_an_answer() -> None:
    class Rude:
        def __repr__(self) -> str:
            raise ValueError("no")

    names = {"rude": Rude()}
    from distdbg.debugger.evaluate import evaluate_in

    assert "Rude" in evaluate_in("rude", {}, names)["value"]


def test_tensors_are_arrays() -> None:
    torch = pytest.importorskip("torch")
    assert show(torch.ones(2, 2)) == "float32[2, 2] [1, 1, 1, 1]"
    assert show(torch.ones(2, requires_grad=True).sum()) == "float32[] 2.0"
