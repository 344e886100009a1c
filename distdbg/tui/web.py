"""`distdbg top --web`: the same dashboard in a browser. web_server serves it, gate checks who may connect.

Each tab of the browser runs a dashboard of its own, with the arguments of this one. It ends with its tab, and
all of them with the server, also when that is killed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from distdbg.errors import ConfigError


def serve(
    command: Sequence[str], *, port: int = 0, title: str = "distdbg top", say: Callable[[str], None]
) -> int:
    """Serve until SIGINT or SIGTERM; return the exit code. `say` gets the URL, once it can be opened.

    `command` draws one dashboard: `distdbg top` with all of its arguments but --web and --port. UsageError:
    the port is not free. ConfigError: textual-serve is not installed.
    """
    try:
        from distdbg.tui.web_server import run_server
    except ImportError as error:
        raise ConfigError(
            "`distdbg top --web` needs the package textual-serve, which is not installed",
            details=[str(error)],
            hint="pip install 'distdbg[web]'",
        ) from error
    return run_server(command, port=port, title=title, say=say)


def command_of(python: str, argv: Sequence[str]) -> list[str]:
    """What draws the dashboard of one tab, from the arguments of `distdbg top` itself."""
    rest = []
    skip = False
    for word in argv:
        if skip:
            skip = False
        elif word == "--port":
            skip = True
        elif word != "--web" and not word.startswith("--port="):
            rest.append(word)
    return [python, "-m", "distdbg", "top", *rest]
