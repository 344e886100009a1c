"""`distdbg COMMAND`: looks the command up in the table and runs it.

--help and --version need the table alone, so they import nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from distdbg import __version__
from distdbg.cli.commands import COMMANDS
from distdbg.command import ended_by_interrupts, run_command, spare_last_collection
from distdbg.errors import UsageError

_MODULES = {command.name: command.module for command in COMMANDS}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line, without the program's name; return the exit code."""
    given = sys.argv[1:] if argv is None else list(argv)
    code = run_command(lambda: _dispatch(given))
    if argv is None:
        spare_last_collection()
    return code


def help_text() -> str:
    width = max(len(name) for name in _MODULES)
    lines = [
        "usage: distdbg COMMAND [...]",
        "",
        "Runs distributed programs, and says what is wrong with them.",
        "",
        "commands:",
        *(f"  {command.name:{width}}  {command.about}" for command in COMMANDS),
        "",
        "distdbg COMMAND --help tells more; distdbg --version prints the version.",
    ]
    return "\n".join(lines) + "\n"


def _dispatch(argv: list[str]) -> int:
    if not argv:
        sys.stderr.write(help_text())
        return UsageError.exit_code
    name, *rest = argv
    if name in ("-h", "--help", "help"):
        sys.stdout.write(help_text())
        return 0
    if name in ("-V", "--version"):
        sys.stdout.write(f"distdbg {__version__}\n")
        return 0
    if name not in _MODULES:
        import difflib  # for whoever mistypes alone

        near = difflib.get_close_matches(name, _MODULES, 1)
        raise UsageError(
            f"distdbg: unknown command {name!r}",
            hint=f"did you mean {near[0]}?" if near else f"there are {', '.join(_MODULES)}",
        )
    with ended_by_interrupts():
        module = import_module(_MODULES[name])
    code: int = module.main(rest)
    return code
