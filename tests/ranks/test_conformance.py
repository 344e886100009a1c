"""The checks that every process group passes, on our own API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.testing.conformance.group import Api, run_checks

pytestmark = pytest.mark.ranks


def check_all() -> dict[str, str]:
    dist.init_process_group()
    failures = run_checks(Api(dist, np.array, np.ndarray.tolist))
    dist.destroy_process_group()
    return failures


@pytest.mark.parametrize("size", [2, 3])
def test_our_own_groups_pass_every_check(ranks: Callable[..., Any], size: int) -> None:
    assert ranks(check_all, size) == [{}] * size
