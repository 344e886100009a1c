"""Tokens of one purpose, derived from a key: who learns one of them cannot use it elsewhere. Pure."""

from __future__ import annotations

import hashlib
import hmac


def derive_token(key: bytes, purpose: str, run: str = "") -> bytes:
    """The token of one purpose, and of one run where one is named."""
    words = f"distdbg token\0{purpose}\0{run}".encode("utf-8", "surrogateescape")
    return hmac.digest(key, words, hashlib.sha256)
