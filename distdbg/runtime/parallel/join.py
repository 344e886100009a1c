"""Join: training goes on when ranks have different numbers of batches.

    with dist.Join([model]):
        for batch in batches:              # fewer on some ranks
            model.step(batch)              # calls Join.notify_join_context(self) before its collectives

A rank that leaves the block *joins*: while others still have batches it calls the main hooks of the
joinables, which make the collectives that the others wait for, and after the last rank has joined all call
the post hooks. Who still works is counted by an all_reduce before each step: notify_join_context adds one, a
rank that has joined adds zero. Where the sum is zero, all have joined.

The record gets a mark when a rank joins. Where Join is disabled, and a rank runs out of batches all the same,
marks in the records prove it, and the error says so (`record/batches.py`).
"""

from __future__ import annotations

import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import numpy as np

from distdbg.check.arrays import few
from distdbg.check.explain import name_ranks
from distdbg.errors import CollectiveError, UsageError, WrongTypeError
from distdbg.ops.call import WORDS_SHIFT, Call, Variant
from distdbg.ops.reduce_op import ReduceOp
from distdbg.ops.sites import call_site, shorten
from distdbg.record.batches import JOIN_ENDED
from distdbg.record.known_marks import JOIN_OUT_OF_BATCHES, JOIN_STEP, JOINED
from distdbg.record.writing import write_error
from distdbg.runtime.api import calls
from distdbg.runtime.api.arguments import Array
from distdbg.runtime.api.marks import mark
from distdbg.runtime.api.objects import all_gather_object
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.groups.group_argument import resolve
from distdbg.runtime.handles.work import Work

#: So many steps on behalf of others are worth a warning.
_MAX_SHADOWED: Final = 1000


class JoinHook:
    """What a rank that has joined does for the others; override what is needed."""

    def main_hook(self) -> None:
        """Make the collectives of one step; called as long as another rank has batches."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called once, when all ranks have joined. `is_last_joiner`: this rank was one of the last."""


@dataclass(slots=True)
class _JoinConfig:
    """What a Joinable knows of the block it is in."""

    enable: bool = False
    throw_on_early_termination: bool = False
    is_first_joinable: bool = False
    steps: int = 0
    """How many it has announced."""

    @classmethod
    def construct_disabled_join_config(cls) -> Self:
        """Outside of any block."""
        return cls()


class Joinable(ABC):
    """Something whose collectives others can make in its place: a model, an optimizer.

    Its constructor calls this one's. Before the collectives of a step it calls
    Join.notify_join_context(self).
    """

    @abstractmethod
    def __init__(self) -> None:
        super().__init__()
        self._join_config = _JoinConfig.construct_disabled_join_config()

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Return the hooks; `kwargs` are those given to Join."""

    @property
    def join_device(self) -> Any:
        """Where the arrays of Join's own all_reduce are; 'cpu' unless overridden."""
        return "cpu"

    @property
    @abstractmethod
    def join_process_group(self) -> Any:
        """The group whose ranks join; None: the default group."""


class Join:
    """The block in which ranks may run out of batches one after the other.

    It begins when it is entered, and may be entered again, for the next epoch; the hooks are made once. With
    `throw_on_early_termination` the first rank that runs out ends all of them: an error on every rank names
    it. `enable=False`: nothing is announced and nothing shadowed; inputs are known to be even.
    """

    def __init__(
        self,
        joinables: Sequence[Joinable],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **kwargs: Any,
    ) -> None:
        if isinstance(joinables, Joinable) or not isinstance(joinables, Iterable):
            raise WrongTypeError(
                f"Join: joinables must be a list of Joinables, not {type(joinables).__name__}",
                hint="with one: dist.Join([model])",
            )
        self._joinables = list(joinables)
        if not self._joinables:
            raise UsageError("Join needs at least one Joinable")
        for at, each in enumerate(self._joinables):
            if not isinstance(each, Joinable):
                raise WrongTypeError(
                    f"Join: joinables[{at}] must be a Joinable, not {type(each).__name__}"
                )
            _config_of(each)  # raises
        self._hooks = [_hook_of(each, kwargs) for each in self._joinables]
        self._enable = enable
        self._throws = throw_on_early_termination
        self._group = _group_of(self._joinables[0])
        for each in self._joinables:
            if _group_of(each) is not self._group:
                raise UsageError(
                    f"Join: all joinables must have one group, got {self._group.label!r} and "
                    f"{_group_of(each).label!r} ({type(each).__name__})"
                )
        self._device = self._joinables[0].join_device

    def __enter__(self) -> Self:
        for at, each in enumerate(self._joinables):
            each._join_config = _JoinConfig(self._enable, self._throws, at == 0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        config = _config_of(self._joinables[0])
        try:
            if kind is None:
                mark(JOINED if self._enable else JOIN_OUT_OF_BATCHES, config.steps)
                if self._enable:
                    self._join(config.steps)
        finally:
            for each in self._joinables:
                each._join_config = _JoinConfig.construct_disabled_join_config()

    def _join(self, steps: int) -> None:
        """Shadow the steps of the others until all have joined, then call the post hooks."""
        shadowed = 0
        while self._count_active():
            if self._throws:
                _announce(self._group, self._device, 1, has_joined=True)
                raise _uneven(self._group, is_out=True, steps=steps)
            shadowed += 1
            if shadowed == _MAX_SHADOWED + 1:
                warnings.warn(
                    f"rank {self._group.ranks[self._group.rank()]} has at least {_MAX_SHADOWED} batches "
                    "fewer than ranks that still have some; it only waits for them",
                    stacklevel=3,
                )
            for hook in self._hooks:
                hook.main_hook()
        for hook in self._hooks:
            hook.post_hook(not shadowed)

    def _count_active(self) -> int:
        return _announce(self._group, self._device, 0, has_joined=True)

    @staticmethod
    def notify_join_context(joinable: Joinable) -> Work | None:
        """Say that this rank makes another step; the first joinable of a block does, others say nothing.

        Returns the Work of the all_reduce, which need not be waited for; None where there is none.
        CollectiveError with `throw_on_early_termination` where a rank has run out of batches.
        """
        config = _config_of(joinable)
        if not config.is_first_joinable:
            return None
        config.steps += 1
        if not config.enable:
            mark(JOIN_STEP, config.steps)
            return None
        group, device = _group_of(joinable), joinable.join_device
        work = group.run(_count(_ones(device, 1), has_joined=False), True)
        started = work.hand_over()
        if started is not None:
            started.end()  # nobody has to wait for it: the step itself does
        if config.throw_on_early_termination and _announce(group, device, 0, has_joined=False):
            raise _uneven(group, is_out=False, steps=config.steps)
        return work


def _config_of(joinable: Joinable) -> _JoinConfig:
    config = getattr(joinable, "_join_config", None)
    if not isinstance(config, _JoinConfig):
        raise UsageError(
            f"Join: the constructor of {type(joinable).__name__} has not called Joinable's",
            hint="call super().__init__() in it",
        )
    return config


def _hook_of(joinable: Joinable, options: dict[str, Any]) -> JoinHook:
    hook = joinable.join_hook(**options)
    if not isinstance(hook, JoinHook):
        raise WrongTypeError(
            f"Join: join_hook of {type(joinable).__name__} must return a JoinHook, not {type(hook).__name__}"
        )
    return hook


def _group_of(joinable: Joinable) -> ProcessGroup:
    group = resolve(joinable.join_process_group, "Join")
    if group is None:
        raise UsageError(f"Join: this rank is not in the group of {type(joinable).__name__}")
    return group


def _ones(device: Any, value: int) -> Any:
    """The array of an announcement: NumPy's, or torch's where the group is for another device."""
    if str(device) != "cpu" and (torch := sys.modules.get("torch")) is not None:
        return torch.full((1,), float(value), device=device)
    return np.full(1, value, np.float32)


def _count(array: Array, *, has_joined: bool) -> Call:
    """The sum over all ranks: another op than an all_reduce of the program's, which never meets it."""
    call = calls.all_reduce(array, ReduceOp.SUM)
    call.name = "Join"
    call.add_extra(Variant.JOIN_COUNT | has_joined << WORDS_SHIFT)
    return call


def _announce(group: ProcessGroup, device: Any, value: int, *, has_joined: bool) -> int:
    """What the announcements of all ranks sum up to."""
    count = _ones(device, value)
    group.run(_count(count, has_joined=has_joined))
    return int(count[0])


def _uneven(group: ProcessGroup, *, is_out: bool, steps: int) -> CollectiveError:
    """The same error on all ranks, which all call this: who ran out of batches, at which step and line.

    It is no op's, and in the record of each rank all the same.
    """
    everybody: list[Any] = list(group.ranks)  # as many
    all_gather_object(everybody, (is_out, steps, call_site()), group=group)
    out = [rank for rank, each in zip(group.ranks, everybody, strict=True) if each[0]]
    step = 1 + max(each[1] for each in everybody if each[0])
    short = shorten({site for _, _, site in everybody})
    places: dict[tuple[bool, str], list[int]] = {}
    for rank, (has_ended, _, site) in zip(group.ranks, everybody, strict=True):
        places.setdefault((has_ended, short[site]), []).append(rank)
    error = CollectiveError(
        f"{name_ranks(out)} ran out of batches at step {step}; Join ends all ranks "
        f"of group '{group.label}'",
        kind=JOIN_ENDED,
        seq=group.issued(),
        group=group.label,
        ranks=out,
        details=[
            *few(
                [
                    f"{name_ranks(ranks)} {'had no batch left' if has_ended else 'began a step'} at {site}"
                    for (has_ended, site), ranks in sorted(places.items(), reverse=True)
                ]
            ),
            "throw_on_early_termination is set",
            "the group is still usable",
        ],
        hint="give all ranks as many batches, or let Join go on without throw_on_early_termination",
    )
    if group.world.recorder is not None:
        write_error(group.world.recorder, group.record_number, 0, error)
    return error
