"""What runs on GPUs. Without one these tests are left out, with that reason."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

#: By the device files: asking CUDA would start it in the process that forks the ranks.
GPUS = len(list(Path("/dev").glob("nvidia[0-9]*"))) if importlib.util.find_spec("cupy") else 0


@pytest.fixture(autouse=True)
def _has_gpus(request: pytest.FixtureRequest) -> None:
    marker = request.node.get_closest_marker("gpus")
    needed = marker.args[0] if marker is not None else 1
    # No installation brings a GPU: the one reason for which also `make check` leaves a test out.
    if needed > GPUS:
        pytest.skip("needs a GPU" if needed == 1 else f"needs a GPU for each of {needed} ranks")
