"""Draws the dashboards of Grafana from a Prometheus, each into one SVG.

python -m dashboards.draw --address http://127.0.0.1:9090 --set run=RUN --minutes 5 --into pictures
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Final

from dashboards.draw.fill import Asked, Shown, choose, one_of
from dashboards.draw.page import page
from tests.support.prometheus import PrometheusAt

BOARDS: Final = Path(__file__).resolve().parents[1] / "grafana" / "dashboards"


def draw(
    server: Asked, shown: Shown, wanted: dict[str, str], folder: Path, boards: Path = BOARDS
) -> list[Path]:
    """A picture of each dashboard, under its name without what is common to all."""
    made = []
    for path in sorted(boards.glob("*.json")):
        board = json.loads(path.read_text(encoding="utf-8"))
        target = folder / f"grafana-{path.stem.removeprefix('distdbg-')}.svg"
        picture = page(board, server, choose(board, server, shown, wanted))
        target.write_text(picture, encoding="utf-8")
        made.append(target)
    return made


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m dashboards.draw", description=__doc__)
    parser.add_argument("--address", default="http://127.0.0.1:9090", help="of the Prometheus")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a variable; several values: rank=3,4",
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="of the time that is shown")
    parser.add_argument("--until", type=float, help="its end, in seconds since 1970 (now)")
    parser.add_argument("--scrape", type=float, default=15.0, help="seconds between two scrapes")
    parser.add_argument("--into", type=Path, default=Path(), help="the folder for the pictures")
    chosen = parser.parse_args(arguments)
    end_s = chosen.until or time.time()
    begin_s = end_s - 60 * chosen.minutes
    shown = Shown(begin_s=begin_s, end_s=end_s, scrape_s=chosen.scrape)
    pairs = (one.split("=", 1) for one in chosen.set)
    wanted = {name: one_of(it.split(",")) if "," in it else it for name, it in pairs}
    for path in draw(PrometheusAt(chosen.address), shown, wanted, chosen.into):
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
