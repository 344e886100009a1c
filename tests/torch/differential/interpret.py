"""Runs a program on one rank against a module with torch.distributed's API.

Results are JSON: one entry per step, None where this rank has no part. An exception in a legal
step is a result as well, and ends the program on this rank.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from differential.collectives import COLLECTIVES
from differential.context import Context
from differential.groups import UNSORTED, make_groups
from differential.illegal import CASES, takes_part
from differential.messages import MESSAGES
from differential.values import Array

HANDLERS = {**COLLECTIVES, **MESSAGES}

Result = dict[str, Any]


class Interpreter:
    """One rank of an initialised module; keeps the groups for all programs."""

    def __init__(self, dist: Any, to_array: Callable[[Array], Any]) -> None:
        self.dist = dist
        self.to_array = to_array
        self.rank: int = dist.get_rank()
        self.members = make_groups(dist.get_world_size())
        unsorted = len(self.members) + UNSORTED
        self.groups = [
            None,
            dist.group.WORLD,
            *(
                dist.new_group(ranks, sort_ranks=place != unsorted)
                for place, ranks in enumerate(self.members[2:], start=2)
            ),
        ]

    def run(self, program: dict[str, Any]) -> list[Result | None]:
        """Walk through the steps; see programs.py for why this ends."""
        steps = program["steps"]
        results: list[Result | None] = [None] * len(steps)
        waiting: list[tuple[int, int, Context, Any]] = []
        index = 0
        try:
            for index, step in enumerate(steps):
                members = self.members[step["group"]]
                if self.rank in members:
                    context = Context(
                        dist=self.dist,
                        to_array=self.to_array,
                        step=step,
                        index=index,
                        rank=self.rank,
                        members=members,
                        group=self.groups[step["group"]],
                    )
                    if step["do"] == "illegal":
                        results[index] = _call_illegal(context)
                        continue
                    returned = HANDLERS[step["do"]](context)
                    if hasattr(returned, "wait"):
                        waiting.append((index + step["delay"][self.rank], index, context, returned))
                    else:
                        results[index] = {"returned": returned, **context.collect()}
                due = sorted(entry for entry in _keys(waiting) if entry[0] <= index)
                _finish(waiting, due, results)
            _finish(waiting, sorted(_keys(waiting)), results)
        except Exception as error:
            results[index] = {"error": type(error).__name__, "text": str(error)[:500]}
        return results


def _keys(waiting: list[tuple[int, int, Context, Any]]) -> list[tuple[int, int]]:
    return [(due, index) for due, index, _, _ in waiting]


def _finish(
    waiting: list[tuple[int, int, Context, Any]],
    due: list[tuple[int, int]],
    results: list[Result | None],
) -> None:
    """Wait for these ops in the order given."""
    for key in due:
        place = _keys(waiting).index(key)
        _, index, context, work = waiting.pop(place)
        returned = work.wait()
        if not isinstance(returned, bool):
            returned = True  # torch's all_gather_coalesced gives a Future, whose wait gives arrays
        results[index] = {"returned": returned, **context.collect()}


def _call_illegal(context: Context) -> Result | None:
    case = CASES[context.step["case"]]
    if not takes_part(case, context):
        return None
    try:
        case.call(context)
    except Exception as error:
        return {"raised": True, "class": type(error).__name__, "text": str(error)[:200]}
    return {"raised": False}
