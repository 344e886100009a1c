"""HOST:PORT, also with an IPv6 address in brackets: read and written."""

from __future__ import annotations

import re

from distdbg.errors import UsageError

_HOST = re.compile(r"[\w.:%-]+")


def parse_endpoint(flag: str, text: str, default_port: int | None = None) -> tuple[str, int | None]:
    """Return host and port of 'host:port', 'host', '[::1]:port' or '[::1]'; `flag` is for the error."""
    text = text.strip()
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        is_whole = bool(closed) and (not rest or rest.startswith(":"))
        port = rest[1:] if rest else None
    elif text.count(":") > 1:  # an IPv6 address needs brackets before a port, so here is none
        host, port, is_whole = text, None, True
    else:
        host, colon, after = text.partition(":")
        port, is_whole = (after if colon else None), True
    if not is_whole or not _HOST.fullmatch(host):
        raise UsageError(f"{flag}={text!r} is not valid; expected HOST:PORT")
    if port is None:
        return host, default_port
    if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise UsageError(f"{flag}={text!r}: the port must be a number from 0 to 65535")
    return host, int(port)


def join_endpoint(host: str, port: int) -> str:
    """'10.0.0.5:9400', '[::1]:9400'."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
