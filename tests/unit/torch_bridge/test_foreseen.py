"""Which op of an FSDP unit is expected, by what followed what in passes before."""

from __future__ import annotations

import pytest

from distdbg.runtime.parallel.reducer.names import is_unit, unit_name
from distdbg.torch_bridge.tap.foreseen import Foreseen


def pass_of(foreseen: Foreseen, phase: int, ops: str) -> list[bool]:
    return [foreseen.follows(op, phase) for op in ops]


def test_ops_that_follow_as_in_a_pass_before_are_expected_but_for_the_first() -> None:
    foreseen = Foreseen()
    assert pass_of(foreseen, 0, "abc") == [False, False, False]
    assert pass_of(foreseen, 1, "cba") == [False, False, False]
    assert pass_of(foreseen, 2, "abc") == [False, True, True]
    assert pass_of(foreseen, 3, "cba") == [False, True, True]


def test_another_op_is_not_expected_and_neither_is_what_follows_it_for_the_first_time() -> None:
    foreseen = Foreseen()
    pass_of(foreseen, 0, "abc")
    assert pass_of(foreseen, 2, "axbc") == [False, False, False, True]
    assert pass_of(foreseen, 4, "axbc") == [False, True, True, True]


def test_what_followed_in_a_backward_pass_says_nothing_of_a_forward_pass() -> None:
    foreseen = Foreseen()
    pass_of(foreseen, 1, "ab")
    assert pass_of(foreseen, 2, "ab") == [False, False]


@pytest.mark.parametrize("module", [None, "layers.0"])
def test_ops_of_units_are_known_by_their_names(module: str | None) -> None:
    assert is_unit(unit_name(module, "dp"))


@pytest.mark.parametrize("name", ["", "DDP bucket 1 of fc", "the program's FSDP unit"])
def test_other_ops_are_none_of_units(name: str) -> None:
    assert not is_unit(name)
