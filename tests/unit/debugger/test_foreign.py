from __future__ import annotations

import sys
import types
from types import FrameType

import pytest

from distdbg.debugger.foreign import DebuggerFailed, Foreign, chosen_debugger
from distdbg.errors import ConfigError


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({}, ""),
        ({"DISTDBG_DEBUGGER": "pdb"}, ""),
        ({"DISTDBG_DEBUGGER": "pudb"}, "pudb"),
        ({"PYTHONBREAKPOINT": "ipdb.set_trace"}, "ipdb.set_trace"),
        ({"PYTHONBREAKPOINT": "pdb.set_trace"}, ""),
        ({"PYTHONBREAKPOINT": ""}, ""),
        ({"PYTHONBREAKPOINT": "0"}, None),
        ({"PYTHONBREAKPOINT": "0", "DISTDBG_DEBUGGER": "ipdb"}, "ipdb"),
    ],
)
def test_the_debugger_is_chosen_by_our_variable_and_then_by_pythons(
    environ: dict[str, str], name: str | None
) -> None:
    assert chosen_debugger(environ) == name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no_such_debugger", "No module named 'no_such_debugger'"),
        ("no_such.debugger", "No module named 'no_such'"),
        ("json", "json has no set_trace"),
        ("json.nothing", "json has no nothing"),
        ("..debugger", "the 'package' argument is required"),
        (".", "the 'package' argument is required"),
    ],
)
def test_a_debugger_that_is_not_there_is_said_by_name(name: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Foreign(name)
    assert why in caught.value.what


def make_module(monkeypatch: pytest.MonkeyPatch, function: object) -> None:
    module = types.ModuleType("a_debugger_of_a_test")
    module.set_trace = function  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)


def test_it_is_called_as_if_by_the_users_line(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[FrameType] = []
    make_module(monkeypatch, lambda: seen.append(sys._getframe(1)))
    here = sys._getframe(0)
    assert not Foreign("a_debugger_of_a_test").enter(here)
    (frame,) = seen
    assert frame.f_code.co_filename == here.f_code.co_filename
    assert frame.f_code.co_name == here.f_code.co_name
    assert frame.f_locals["seen"] is seen


def test_a_debugger_that_fails_is_no_error_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise OSError("no terminal")

    make_module(monkeypatch, fails)
    with pytest.raises(DebuggerFailed, match=r"'a_debugger_of_a_test' has failed: OSError: no"):
        Foreign("a_debugger_of_a_test").enter(sys._getframe(0))
