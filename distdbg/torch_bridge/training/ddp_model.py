"""Model: one DistributedDataParallel, as the record sees it.

DDP reduces its buckets strictly in order, one all_reduce each, as their gradients get ready. So the next
op of its size on its group, in a backward pass, is the next bucket; torch says nothing with the op itself.
Where the reducer has a group of its own (tap/reducing.py), the op is known to be its model's. Where it has
not, and an op may be a bucket of several models, none of them gets it: it has no name.

After the first step DDP may order its buckets anew. The new ones are read from the reducer at once where
that is cheap (it copies as much as the buckets hold), else from what DDP logs about itself, a step later:
until then a bucket has its number alone.

A parameter got a gradient in a pass if it has one and had none, or if its gradient was written to: torch
counts that (`Tensor._version`).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from operator import attrgetter, is_
from typing import Any

from distdbg.runtime.parallel.reducer.names import bucket_name

#: Buckets that hold more than this are not copied to be looked at.
_MAX_COPIED_NBYTES = 64 << 20

_gradient_of = attrgetter("grad")
_is_none = partial(is_, None)


class DdpBucket:
    """One of the buckets of a Model, in the order in which they are reduced."""

    __slots__ = ("comm", "is_first", "known", "next", "numel")

    def __init__(self, comm: str, numel: int, is_first: bool) -> None:
        #: What its op is called.
        self.comm = comm
        self.numel = numel
        #: Whether a pass begins with it.
        self.is_first = is_first
        #: The one after it.
        self.next: DdpBucket | None = None
        #: What tap/reducing.py has filled in about its ops.
        self.known: Any = None


class Model:
    """The buckets of one DDP and how far they have come."""

    def __init__(
        self, ddp: Any, parameters: Sequence[Any], buckets: Sequence[Sequence[int]]
    ) -> None:
        self.ddp = weakref.ref(ddp, self._forget)
        self.group_name: str = ddp.process_group.group_name
        names = {id(parameter): name for name, parameter in ddp.module.named_parameters()}
        self._parameters = list(parameters)
        self._names = [names.get(id(one), f"parameter {at}") for at, one in enumerate(parameters)]
        #: Whether its forward pass has run since a backward pass gave it gradients.
        self.is_forwarded = False
        #: How many steps were done when a backward pass did so; -1: none has.
        self.steps_done = -1
        #: The parameters that the last pass gave no gradient, though a bucket waits for them.
        self.unused: list[str] = []
        self._total = sum(one.numel() for one in parameters)
        self._versions: list[int | None] = []
        self._no_versions: list[int | None] = [None] * len(self._parameters)
        self._done = 0
        self._numel = 0
        self._has_rebuilt = False
        #: Whether its reducer's ops are told as such, so that no other op is one of its buckets.
        self.is_reported = False
        #: Whether an op of this pass was a bucket of this model or of another: how far it is, is not known.
        self.is_unsure = False
        #: () while DDP has ordered them anew and not said how.
        self._buckets: tuple[DdpBucket, ...] = ()
        #: The one that is reduced next; None: all are on their way, or they are not known.
        self.expects: DdpBucket | None = None
        self._set_buckets(buckets)

    def _set_buckets(self, buckets: Sequence[Sequence[int]]) -> None:
        self._buckets = tuple(
            DdpBucket(
                bucket_name(at, [self._names[i] for i in each]),
                sum(self._parameters[i].numel() for i in each),
                at == 0,
            )
            for at, each in enumerate(buckets)
        )
        for one, after in pairwise(self._buckets):
            one.next = after
        self.expects = self._buckets[0] if self._buckets else None

    def _forget(self, _: object) -> None:
        """The DDP is gone: who still knows this model must not keep its parameters and its group."""
        self._parameters, self._names = [], []
        self._versions, self._no_versions = [], []
        self._buckets, self.expects = (), None

    def begin(self, ddp: Any) -> None:
        """A forward pass of its DDP has ended whose backward pass reduces."""
        self.is_forwarded = True
        self.is_unsure = False
        self._done = self._numel = 0
        if self.unused:
            self.unused = []
        if getattr(ddp, "_has_rebuilt_buckets", False):
            if not self._has_rebuilt:
                self._has_rebuilt = True
                self._buckets = ()
            if not self._buckets:
                self._look(ddp)
        self.expects = self._buckets[0] if self._buckets else None

    def before_backward(self) -> None:
        """Remember how gradients were."""
        gradients = list(map(_gradient_of, self._parameters))
        if all(map(_is_none, gradients)):  # as torch's optimizers leave them
            self._versions = self._no_versions
            return
        self._versions = [None if one is None else one._version for one in gradients]

    def may_reduce(self, numel: int) -> bool:
        """Whether an all_reduce of so many elements may be a bucket that is to come."""
        if not self._buckets:
            return self.is_unsure or self._numel + numel <= self._total
        bucket = self._buckets[0] if self.is_unsure else self.expects
        while bucket is not None and bucket.numel != numel:
            bucket = bucket.next
        return bucket is not None

    def next_name(self, numel: int) -> str:
        """The name of the bucket that an all_reduce of so many elements is; '' if it is none."""
        if not self._buckets:
            if self._numel + numel > self._total:
                return ""
            self._done += 1
            self._numel += numel
            return bucket_name(self._done - 1, ())
        bucket = self.expects
        while bucket is not None:
            if bucket.numel == numel:
                self.expects = bucket.next
                return bucket.comm
            bucket = bucket.next  # with skip_all_reduce_unused_params some may be left out
        return ""

    def reduced(self, index: int) -> str:
        """Note that this bucket is on its way; its name."""
        if index < len(self._buckets):
            self.expects = self._buckets[index].next
            return self._buckets[index].comm
        return bucket_name(index, ())

    @property
    def is_complete(self) -> bool:
        """Whether all buckets are on their way; where that is not known, whether no gradient is missing."""
        if self.is_unsure:
            return not self.without_gradient()
        return self.expects is None if self._buckets else self._numel >= self._total

    def without_gradient(self) -> list[str]:
        """The parameters that got no gradient in this pass; [] when none of them got one."""
        if len(self._versions) != len(self._parameters):
            return []
        missing = []
        for name, parameter, before in zip(
            self._names, self._parameters, self._versions, strict=True
        ):
            gradient = parameter.grad
            if gradient is None or gradient._version == before:
                missing.append(name)
        return [] if len(missing) == len(self._names) else missing

    def with_gradient(self) -> Iterator[str]:
        """The parameters that got a gradient in this pass."""
        if len(self._versions) != len(self._parameters):
            return
        for name, parameter, before in zip(
            self._names, self._parameters, self._versions, strict=True
        ):
            if parameter.grad is not None and parameter.grad._version != before:
                yield name

    def _look(self, ddp: Any) -> None:
        nbytes = sum(one.numel() * one.element_size() for one in self._parameters)
        found = self._copied(ddp) if nbytes <= _MAX_COPIED_NBYTES else self._logged(ddp)
        if sorted(i for each in found for i in each) == list(range(len(self._parameters))):
            self._set_buckets(found)

    def _copied(self, ddp: Any) -> list[list[int]]:
        places = {id(one): at for at, one in enumerate(self._parameters)}
        buckets = ddp.reducer._get_zeros_like_grad_buckets()
        return [[places.get(id(one), -1) for one in each.parameters()] for each in buckets]

    def _logged(self, ddp: Any) -> list[list[int]]:
        text = ddp.logger._get_ddp_logging_data().strs_map.get(
            "rebuilt_per_bucket_param_indices", ""
        )
        return [[int(word) for word in each.split()] for each in text.split(",")]
