"""What `distdbg top --web` starts for each tab."""

import sys

import pytest

from distdbg.errors import ConfigError
from distdbg.tui.web import command_of, serve


def test_a_tab_gets_the_same_arguments_but_those_of_the_server() -> None:
    argv = ["run", "--web", "--port", "4711", "--readonly", "--port=1", "--view", "ops"]
    assert command_of("py", argv) == [
        "py", "-m", "distdbg", "top", "run", "--readonly", "--view", "ops",
    ]  # fmt: skip


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distdbg.tui.web_server", None)
    with pytest.raises(ConfigError) as caught:
        serve(["true"], say=print)
    assert caught.value.hint == "pip install 'distdbg[web]'"
