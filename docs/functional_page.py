"""Writes the page of the functional collectives, from their signatures and docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from distdbg import ReduceOp, functional

#: What the backward pass of each one runs; a function without a row here is an error.
GRADIENTS = {
    "all_gather": "`reduce_scatter` along the same dimension",
    "all_gather_into_tensor_coalesced": "`reduce_scatter_tensor_coalesced`",
    "all_gather_list": "`reduce_scatter_list`",
    "all_reduce": "`all_reduce` of the gradients",
    "all_reduce_coalesced": "`all_reduce_coalesced` of the gradients",
    "all_to_all": "`all_to_all` with the split sizes exchanged",
    "all_to_all_list": "`all_to_all_list`",
    "broadcast": "`reduce` to rank `src`",
    "gather": "`scatter` from rank `dst`",
    "permute": "`permute` by the inverse permutation",
    "reduce": "`broadcast` from rank `dst`",
    "reduce_scatter": "`all_gather` along the same dimension",
    "reduce_scatter_list": "`all_gather_list`, for blocks of one shape",
    "reduce_scatter_tensor_coalesced": "`all_gather_into_tensor_coalesced`",
    "scatter": "`gather` to rank `src`",
}


def functional_page() -> str:
    """The page."""
    ops: dict[str, Callable[..., Any]] = {}
    aliases: dict[str, list[str]] = {}
    for name in functional.__all__:
        value = getattr(functional, name)
        if not inspect.isfunction(value) or name == "wait_tensor":
            continue
        if name == value.__name__:
            ops[name] = value
        else:
            aliases.setdefault(value.__name__, []).append(name)
    lines = [
        "# Functional collectives",
        "",
        "`from distdbg import functional as F`. How to use them:",
        "[functional collectives](../how-to/functional-collectives.md).",
        "",
        "All ranks of `group` call them: a group, a `DeviceMesh` of one dimension, or a mesh and one of",
        "its dimensions, as `(mesh, 'dp')`; without it the default group. Arguments are never changed; the",
        "results are new arrays of the library and the dtype of what was given. `op` is a `ReduceOp` or its",
        "name in lower case. With `async_op=True` they return a `Result`. `timeout` is the limit of this op.",
        "",
    ]
    for name in sorted(ops):
        function = ops[name]
        words = " ".join(line for line in (inspect.getdoc(function) or "").splitlines() if line)
        lines += [f"## {name}", "", "```text", f"{name}({_parameters(function)})", "```", ""]
        lines += [words, "", f"Backward: {GRADIENTS[name]}.", ""]
        if name in aliases:
            names = ", ".join(f"`{alias}`" for alias in sorted(aliases[name]))
            lines += [f"As torch calls it: {names}.", ""]
    lines += [
        "## Result",
        "",
        inspect.getdoc(functional.Result) or "",
        "",
        "| method | what it does |",
        "|---|---|",
    ]
    for name in ("wait", "result", "is_completed", "exception"):
        words = (inspect.getdoc(getattr(functional.Result, name)) or "").splitlines()[0]
        lines.append(f"| `{name}` | {words} |")
    lines += ["", f"`wait_tensor`: {inspect.getdoc(functional.wait_tensor)}", ""]
    return "\n".join(lines)


def _parameters(function: Callable[..., Any]) -> str:
    shown = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        default = parameter.default
        if default is inspect.Parameter.empty:
            shown.append(name)
        else:
            text = f"ReduceOp.{default.op.name}" if isinstance(default, ReduceOp) else repr(default)
            shown.append(f"{name}={text}")
    return ", ".join(shown)
