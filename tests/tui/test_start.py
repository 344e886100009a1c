"""What a dashboard needs to begin, and what it does not load for that."""

import subprocess
import sys

import pytest

from distdbg.errors import UsageError
from distdbg.tui.terminal import require_terminal

pytestmark = pytest.mark.tui

#: Each of them takes a good part of the time to the first frame.
SLOW = ("numpy", "torch", "distdbg._native", "distdbg.runtime", "distdbg.diagnose.load", "aiohttp")


@pytest.mark.slow
def test_it_loads_nothing_that_is_slow() -> None:
    code = (
        "import sys, distdbg.cli.top, distdbg.client.live_feed, distdbg.tui.app;"
        f"print([name for name in {SLOW} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("term", [None, "", "dumb"])
def test_a_terminal_that_cannot_be_drawn_on_is_refused_by_name(term: str | None) -> None:
    environ = {} if term is None else {"TERM": term}
    with pytest.raises(
        UsageError, match=f"cannot draw on a terminal of the kind TERM={term or ''!r}"
    ):
        require_terminal(True, environ)


def test_where_there_is_no_terminal_it_says_what_else_there_is() -> None:
    with pytest.raises(UsageError, match="needs a terminal") as caught:
        require_terminal(False, {"TERM": "xterm"})
    assert "--once" in str(caught.value.hint)


def test_a_terminal_and_a_tab_of_a_browser_are_fine() -> None:
    require_terminal(True, {"TERM": "xterm-256color"})
    require_terminal(False, {"TEXTUAL_DRIVER": "distdbg.tui.web_driver:TopWebDriver"})
