"""Gate: who may come in to a dashboard that is served to a browser. Pure.

The server listens on 127.0.0.1, where every user of the host and every page in the browser can reach it. So:

    token       who has started the server has it: in the URL that was printed. It comes with the first
                request and is exchanged for a cookie, so that it stays in no history and no Referer.
    cookie      a secret of its own, for one path alone that nobody can guess: cookies know no ports, so any
                other server on 127.0.0.1 would get it too, if the browser ever asked it for that path.
    Host        only our own names: a page of a foreign name that is made to point to 127.0.0.1 (DNS
                rebinding) still sends that name.
    Origin      only our own: a page of somebody else may open a websocket to us, but says where it is from.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

COOKIE: Final = "distdbg_top"
_NAMES: Final = ("127.0.0.1", "localhost")


class Answer(StrEnum):
    """What becomes of a request."""

    REFUSE = "refuse"
    GREET = "greet"  # the token was right: give the cookie, and send on to the page
    SERVE = "serve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The secrets of one server."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    prefix: str = field(default_factory=lambda: secrets.token_urlsafe(12))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    @property
    def path(self) -> str:
        """Under which all is served but the first request."""
        return f"/{self.prefix}/"

    def answer(
        self,
        *,
        path: str,
        host: str | None,
        origin: str | None,
        token: str | None,
        cookie: str | None,
    ) -> Answer:
        """Compared in constant time, and without a word about what was wrong."""
        names = [f"{name}:{self.port}" for name in _NAMES]
        if host not in names or (
            origin is not None and origin not in map("http://{}".format, names)
        ):
            return Answer.REFUSE
        if path == "/":
            return Answer.GREET if _is_same(token, self.token) else Answer.REFUSE
        if path.startswith(self.path) and _is_same(cookie, self.cookie):
            return Answer.SERVE
        return Answer.REFUSE


def _is_same(given: str | None, secret: str) -> bool:
    return secrets.compare_digest((given or "").encode(), secret.encode())
