"""Draws plans as text: a column for each rank, a line across for each gate."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from distdbg.runtime.plan.steps import Plan, Space, Step, StepKind


def format_place(space: Space, block: int, offset: int, nbytes: int) -> str:
    """A place as 'input 2 [0:64]'; slots and scratch have no blocks."""
    has_blocks = space in (Space.INPUT, Space.OUTPUT)
    name = f"{space.name.lower()} {block}" if has_blocks else space.name.lower()
    return f"{name} [{offset}:{offset + nbytes}]"


def format_step(step: Step) -> str:
    """A step as 'output 0 [0:64] = fold slot [0:64]'."""
    src = format_place(step.src, step.src_block, step.src_offset, step.nbytes)
    dst = format_place(step.dst, step.dst_block, step.dst_offset, step.nbytes)
    match step.kind:
        case StepKind.GATE:
            return "gate"
        case StepKind.COPY:
            return f"{dst} = {src}"
        case StepKind.PULL:
            return f"{dst} = rank {step.peer} {src}"
        case StepKind.FOLD_ALL:
            return f"{dst} = fold{_from(step)} {src}"
        case StepKind.HOST_GATE:
            return "gate of the host"
        case StepKind.FOLD_HOST:
            return f"{dst} = fold of the host {src}"
        case StepKind.SEND:
            return f"send {src} to rank {step.peer}"
        case StepKind.RECV:
            return f"{dst} = message of rank {step.peer}"
        case StepKind.FOLD_AFTER:
            return f"{dst} = itself + {src}"
        case StepKind.FOLD_BEFORE:
            return f"{dst} = {src} + itself"
        case StepKind.DIVIDE:
            return f"{dst} divided"
        case StepKind.FOLD_TO:
            where = "all ranks" if step.peer < 0 else f"rank {step.peer}"
            return f"{where} {dst} = fold{_from(step)} {src}"
        case StepKind.PUSH:
            return f"rank {step.peer} {dst} = {src}"
        case StepKind.SPREAD:
            return f"all ranks {dst} = rank {step.peer} {src}"
        case StepKind.EXCHANGE:
            return "each output p = input `rank` of rank p"


def _from(step: Step) -> str:
    return "" if step.first < 0 else f" from rank {step.first} down"


def draw(plans: Sequence[Plan]) -> str:
    """All ranks side by side; what stands between two gates happens in any order."""
    columns: list[list[list[str]]] = []
    for plan in plans:
        segments: list[list[str]] = [[]]
        for step in plan.steps:
            if step.kind is StepKind.GATE:
                segments.append([])
            else:
                segments[-1].append(format_step(step))
        columns.append(segments)
    heads = [f"rank {rank}" for rank in range(len(plans))]
    widths = [
        max(len(text) for text in [head, *(cell for segment in column for cell in segment)])
        for head, column in zip(heads, columns, strict=True)
    ]
    rule = "-- gate --".ljust(sum(widths) + 3 * (len(plans) - 1), "-")
    lines = [_row(heads, widths)]
    for i, segments_of_all in enumerate(zip_longest(*columns, fillvalue=[])):
        if i > 0:
            lines.append(rule)
        lines += [_row(cells, widths) for cells in zip_longest(*segments_of_all, fillvalue="")]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    pairs = zip(cells, widths, strict=True)
    return "   ".join(cell.ljust(width) for cell, width in pairs).rstrip()
