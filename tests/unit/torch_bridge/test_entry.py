"""What is wrapped of torch.distributed at its import."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest

from distdbg.torch_bridge.entry import prepare
from distdbg.torch_bridge.guarded import state

TORCHS = timedelta(minutes=10)


@pytest.mark.parametrize(("given", "limit"), [("8", timedelta(seconds=8)), (None, TORCHS)])
def test_the_limit_that_is_given_for_ops_is_that_of_groups_without_one(
    given: str | None, limit: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISTDBG_TIMEOUT_S", "DISTDBG_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    if given is not None:
        monkeypatch.setenv("DISTDBG_TIMEOUT_S", given)
    c10d = SimpleNamespace(_get_default_timeout=lambda backend: TORCHS)
    prepare(c10d)
    prepare(c10d)
    assert c10d._get_default_timeout("nccl") == limit


def test_a_limit_that_is_none_ends_the_watching_and_not_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(state, "off", False)
    monkeypatch.setenv("DISTDBG_TIMEOUT_S", "soon")
    c10d = SimpleNamespace(_get_default_timeout=lambda backend: TORCHS)
    prepare(c10d)
    with pytest.warns(
        RuntimeWarning, match=r"does not watch this torch job: the limit of ops: .*soon"
    ):
        assert c10d._get_default_timeout("gloo") == TORCHS
    assert c10d._get_default_timeout("gloo") == TORCHS
