"""A dashboard of a made-up job, and a server for it: `serve` prints the address, `draw` is one tab."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from distdbg.record.rank_state import RankState
from distdbg.view.snapshot import FeedLink, RankRow, Snapshot

BEGAN = time.time()


class CountingFeed:
    """Implements Feed: four ranks, and a number that grows."""

    title = "made up"
    can_change = False
    address = ""

    def __init__(self) -> None:
        rows = {
            rank: RankRow(rank=rank, state=RankState.RUNNING, state_at=BEGAN, host="n14")
            for rank in range(4)
        }
        self._snapshot = Snapshot(run="made-up-run", link=FeedLink.LIVE, ranks=rows, began=BEGAN)

    def latest(self) -> Snapshot:
        seq = int((time.time() - BEGAN) * 10)
        rows = {
            rank: replace(row, op=f"all_reduce #{seq + rank} on group 'world'")
            for rank, row in self._snapshot.ranks.items()
        }
        self._snapshot = replace(self._snapshot, ranks=rows, at=time.time())
        return self._snapshot

    def span(self) -> None:
        return None

    def want(self, topics: frozenset[Any]) -> None:
        pass

    def bars(self, ranks: Sequence[int], begin: float, end: float) -> Mapping[int, Sequence[Any]]:
        return {}

    def log(self) -> Sequence[Any]:
        return ()

    def op(self, key: Any) -> None:
        return None

    def rank(self, rank: int) -> None:
        return None

    def stacks(self, ranks: Sequence[int] | None, native: bool) -> Any:
        raise AssertionError("nobody asks")

    def do(self, action: Any, **words: object) -> str:
        raise AssertionError("nobody asks")

    def seek(self, at: float) -> None:
        pass

    def close(self) -> None:
        pass


def main(what: str) -> int:
    if what == "fail":
        sys.exit("there is no such job\x1b[2J")
    if what == "draw":
        from distdbg.tui.app import TopApp

        TopApp(CountingFeed()).run()
        return 0
    from distdbg.tui.web import serve

    each = "fail" if what == "serve-fail" else "draw"
    return serve([sys.executable, __file__, each], say=lambda url: print(url, flush=True))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
