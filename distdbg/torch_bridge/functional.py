"""Functional collectives in autograd's graph: what `distdbg.functional` does with tensors that require grad.

The op has been carried out by then, on the memory of the tensors. Here its result gets a node of the graph,
whose backward pass runs the op that the gradients need, on all ranks. Such ops are called 'backward of
all_gather at train.py:31' in records and errors; their call site is the line that began the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os.path import basename
from typing import Any

import torch

from distdbg.check.explain import BACKWARD_OF
from distdbg.ops.sites import call_site
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.process.world import record_comm
from distdbg.torch_bridge.call_sites import skip_torch


class _Node(torch.autograd.Function):
    """One functional op in the graph."""

    @staticmethod
    def forward(ctx: Any, words: str, finish: Any, gradient: Any, *inputs: Any) -> Any:
        """Return what the op has made."""
        ctx.words, ctx.gradient = words, gradient
        ctx.shapes = [each.shape for each in inputs]
        return finish()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Run the op of the gradients; with create_graph it is part of the graph as well."""
        with record_comm(ctx.words):
            found = ctx.gradient(*grads)
        shaped = (
            each.reshape(shape) for each, shape in zip(found, ctx.shapes, strict=True)
        )  # a scalar may have become an array of one element
        return None, None, None, *shaped


def differentiable(
    name: str,
    group: ProcessGroup,
    inputs: Sequence[Any],
    finish: Callable[[], Any],
    gradient: Callable[..., Sequence[Any]],
) -> Callable[[], Any]:
    """`finish` with its result in the graph; call it at the op, whose line is told."""
    skip_torch(torch)
    recorder = group.world.recorder
    if recorder is not None:
        _skip_in(recorder)
    words = f"{BACKWARD_OF}{name} at {_place(call_site())}"
    apply: Any = _Node.apply
    return lambda: apply(words, finish, gradient, *inputs)


def _place(site: str) -> str:
    """'train.py:31' of '/home/me/train.py:31 (step)'."""
    return basename(site.rpartition(" (")[0] or site)


def _skip_in(recorder: Any) -> None:
    """A record that began before torch was known: a backward pass goes through lines of torch."""
    from distdbg.ops.sites import skipped_folders

    for folder in skipped_folders()[1:]:
        recorder.skip_folder(folder)
