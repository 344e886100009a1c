"""The native SHA-256 and HMAC give what hashlib gives."""

from __future__ import annotations

import hashlib
import hmac
import random

import pytest

from distdbg import _native


@pytest.mark.parametrize("nbytes", [0, 1, 31, 55, 56, 57, 63, 64, 65, 119, 120, 128, 1000, 100_003])
def test_sha256_agrees_with_hashlib(nbytes: int) -> None:
    data = random.Random(nbytes).randbytes(nbytes)
    assert _native.sha256(data) == hashlib.sha256(data).digest()


@pytest.mark.parametrize("key_nbytes", [0, 1, 32, 63, 64, 65, 200])
def test_hmac_agrees_with_hmac(key_nbytes: int) -> None:
    key, data = random.Random(key_nbytes).randbytes(key_nbytes), b"challenge" * 20
    assert _native.hmac_sha256(key, data) == hmac.digest(key, data, "sha256")
