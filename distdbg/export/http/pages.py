"""What is answered: bytes with a type. Pure."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from html import escape
from typing import Final, NamedTuple

TEXT: Final = "text/plain; charset=utf-8"
HTML: Final = "text/html; charset=utf-8"
JSON: Final = "application/json"
#: Shorter ones are sent as they are.
_WORTH_ZIPPING: Final = 4096


class PageAnswer(NamedTuple):
    body: bytes
    content_type: str = TEXT
    status: int = 200


#: Makes a page for who accepts what its argument, the header Accept, says; in the thread of a
#: connection.
Page = Callable[[str], PageAnswer]


def make_index(title: str, links: Mapping[str, str]) -> PageAnswer:
    """A short page with links: path and what is there."""
    rows = "".join(
        f'<li><a href="{escape(path)}">{escape(path)}</a> {escape(about)}</li>'
        for path, about in links.items()
    )
    text = f"<!doctype html><title>{escape(title)}</title><h1>{escape(title)}</h1><ul>{rows}</ul>\n"
    return PageAnswer(text.encode(), HTML)


def text_answer(status: int, line: str) -> PageAnswer:
    return PageAnswer(f"{line}\n".encode(), TEXT, status)


def zipped(answer: PageAnswer, accept_encoding: str) -> tuple[bytes, bool]:
    """The body as it is sent, and whether it is compressed."""
    if len(answer.body) < _WORTH_ZIPPING or not takes_gzip(accept_encoding):
        return answer.body, False
    return gzip.compress(answer.body, 1, mtime=0), True


def takes_gzip(accept_encoding: str) -> bool:
    """What the header Accept-Encoding says of gzip."""
    for part in accept_encoding.lower().split(","):
        name, _, rest = (piece.strip() for piece in part.partition(";"))
        if name in ("gzip", "*"):
            quality = rest.replace(" ", "").removeprefix("q=")
            return quality not in ("0", "0.0", "0.00", "0.000")
    return False
