"""What Prometheus' HTTP service discovery is told: where there are metrics, and of which run and host. Pure.

    [{"targets": ["127.0.0.1:9400"],
      "labels": {"__scheme__": "http", "__meta_distdbg_run": "...", "__meta_distdbg_host": "n14"}}]

Jobs with and without TLS share a host, so each target has its own scheme. Labels that begin with __meta_ are
for relabelling and are then dropped: each sample has `run` and `host` already.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple


class MetricsTarget(NamedTuple):
    address: str
    """'127.0.0.1:9400'."""
    run: str
    """'' for one that serves several."""
    host: str
    scheme: str = "http"


def write_targets(targets: Iterable[MetricsTarget]) -> bytes:
    """The answer, by run and host."""
    found = [
        {
            "targets": [target.address],
            "labels": {
                "__scheme__": target.scheme,
                "__meta_distdbg_run": target.run,
                "__meta_distdbg_host": target.host,
            },
        }
        for target in sorted(set(targets), key=lambda one: (one.run, one.host, one.address))
    ]
    return json.dumps(found, indent=1).encode() + b"\n"
