"""What an error of the native side becomes for who called the op."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from distdbg.errors import JobAborted
from distdbg.runtime.backends.failures import to_public
from distdbg.runtime.call import Kind


class _Fault(Exception):
    """As `NativeError`, with what it has of an abort."""

    fault = "aborted"
    seq = 0
    peer = -1


def test_an_abort_whose_words_did_not_come_to_this_host_says_where_they_are() -> None:
    call: Any = SimpleNamespace(kind=Kind.BARRIER, name="barrier")
    group: Any = SimpleNamespace(seq=3)
    error: Any = _Fault("")
    found = to_public(error, call, group=group, name="world", rank=0, names=[0], waited_s=1.0)
    assert isinstance(found, JobAborted)
    assert "the reason did not reach this host: read the errors of the other ranks" in found.what
