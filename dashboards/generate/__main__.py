"""Writes the dashboards.

python -m dashboards.generate            write them
python -m dashboards.generate --check    exit 1 and name those that are not current
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.generate.agent import agent
from dashboards.generate.groups import groups
from dashboards.generate.overview import overview
from dashboards.generate.ranks import ranks
from dashboards.generate.stragglers import stragglers

FOLDER: Final = Path(__file__).resolve().parents[1] / "grafana" / "dashboards"


def dashboards() -> dict[str, Dashboard]:
    """By the name of their file."""
    made = (overview(), ranks(), groups(), stragglers(), agent())
    return {f"{dashboard.uid}.json": dashboard for dashboard in made}


def to_text(dashboard: Dashboard) -> str:
    """The same text for the same dashboard, by keys in their order: a change is a small diff."""
    return json.dumps(dashboard, cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def stale() -> list[str]:
    """Files that are not what the code makes, and those that it makes no more."""
    wanted = {name: to_text(dashboard) for name, dashboard in dashboards().items()}
    found = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    return sorted(
        name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)
    )


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        names = stale()
        for name in names:
            print(f"not current: {name}", file=sys.stderr)
        return 1 if names else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted = dashboards()
    for path in FOLDER.glob("*.json"):
        if path.name not in wanted:
            path.unlink()
    for name, dashboard in wanted.items():
        (FOLDER / name).write_text(to_text(dashboard), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
