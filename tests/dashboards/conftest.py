"""Makes `dashboards` importable: it lies in the checkout, and no wheel contains its code."""

from __future__ import annotations

import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]

if (CHECKOUT / "dashboards").is_dir():
    # Last, or the checkout's distdbg would hide an installed one.
    sys.path.append(str(CHECKOUT))
else:
    collect_ignore_glob = ["*"]
