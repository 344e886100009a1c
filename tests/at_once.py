"""Says what failed when it fails; with several workers pytest itself waits for the end of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

#: Of each failure; the end of the run has all of it.
_MOST_LINES = 12


class AtOnce:
    """A plugin of the process that prints."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if not report.failed or terminal is None:
            return
        terminal.ensure_newline()
        for line in lines_of(report):
            terminal.write_line(line)
        terminal.flush()


def lines_of(report: pytest.TestReport) -> list[str]:
    """The test, and the first lines of why."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else report.longreprtext
    why = text.splitlines()
    cut = len(why) - _MOST_LINES
    shown = [*why[:_MOST_LINES], f"... {cut} more lines"] if cut > 0 else why
    return [f"FAILED {report.nodeid} ({report.when})", *(f"  {line}" for line in shown)]
