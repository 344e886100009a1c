"""Decides who may read: processes of this host whose user is known, and whoever has the token. Pure.

    loopback address   whose connection it is: the job's own user, root, one that is named; or the token
    any other          the token alone

The token comes as `Authorization: Bearer TOKEN`, as Prometheus sends it. Who is let in by the user must
also ask for a name that is ours: a page of a foreign name that is made to point to 127.0.0.1 (DNS
rebinding) has the browser of that user ask, but under that name.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

_BEARER: Final = "bearer "
_ROOT: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessGate:
    own_uid: int
    uids: frozenset[int] = frozenset()
    """Other users that may read over a loopback address."""
    token: bytes = b""
    """Empty: nobody comes in by one."""
    token_name: str = "DISTDBG_METRICS_TOKEN_FILE"
    users_name: str = "DISTDBG_METRICS_USERS"
    """What names the two, for who is not let in."""

    def why_not(
        self, *, uid: int | None, is_local: bool, host: str | None, authorization: str | None
    ) -> str:
        """One line for who may not; '' for who may.

        `uid`: of who made the connection; None: not known. `is_local`: it came over a loopback address.
        `host` and `authorization` are the headers of these names.
        """
        if authorization is not None:
            is_right = bool(self.token) and _is_token(authorization, self.token)
            return "" if is_right else "the token is not the one of this server"
        if not is_local:
            return (
                "a token is needed: send the header 'Authorization: Bearer TOKEN' with what is in "
                f"the file that {self.token_name} names"
            )
        if uid is None or uid not in {self.own_uid, _ROOT, *self.uids}:
            who = "this user" if uid is None else f"uid {uid}"
            return (
                f"{who} may not read this: {self.users_name} names the users of this host that may, "
                f"or send 'Authorization: Bearer TOKEN' with what is in the file that {self.token_name} names"
            )
        if not _is_our_name(host):
            return "ask for localhost or an address: a browser may be led here under any other name"
        return ""


def find_uids(names: Collection[str], uid_of: dict[str, int]) -> frozenset[int]:
    """The uids of users by name or number; those that this host does not have are left out."""
    found = (uid_of.get(name, int(name) if name.isdecimal() else None) for name in names)
    return frozenset(uid for uid in found if uid is not None)


def _is_token(authorization: str, token: bytes) -> bool:
    scheme, given = authorization[: len(_BEARER)], authorization[len(_BEARER) :].strip()
    is_bearer = scheme.lower() == _BEARER
    # Headers come as Latin-1.
    return is_bearer and secrets.compare_digest(given.encode("latin-1", "replace"), token)


def _is_our_name(host: str | None) -> bool:
    if host is None:
        return True  # HTTP/1.0; no browser
    name = host.strip()
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    if name.lower() == "localhost":
        return True
    with suppress(ValueError):
        ipaddress.ip_address(name)
        return True
    return False
