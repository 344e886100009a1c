"""GradientReducer: data parallel training for arrays without autograd: NumPy, CuPy, JAX, tensors.

    reducer = dist.GradientReducer(parameters)         # all ranks have rank 0's values
    for batch in batches:
        gradients = reducer.reduce(backward(parameters, batch))

or, while the backward pass still runs, `reducer.ready("layer.weight", gradient)` for each gradient, and then
`reducer.finish()`.

Trees of arrays are dicts, lists and tuples, nested or not, as JAX and NumPy programs keep parameters. A
leaf has the name of its path: 'layer.weight', 'layers[3].bias'. None in a tree of gradients is a gradient
that is not there, and in one of averages a parameter that no rank has used.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from distdbg.errors import UsageError, WrongTypeError
from distdbg.log.log_levels import DebugLevel
from distdbg.log.logs import get_logger
from distdbg.ops.dtypes import CARRIERS, FROM_NUMPY, from_numpy
from distdbg.ops.sites import call_site
from distdbg.runtime.api.collectives import broadcast
from distdbg.runtime.arrays import torch_arrays
from distdbg.runtime.groups.group_argument import Group, resolve
from distdbg.runtime.groups.levels import level_of
from distdbg.runtime.parallel.reducer.agreement import Description
from distdbg.runtime.parallel.reducer.arrays import Array, NumpyArrays
from distdbg.runtime.parallel.reducer.buckets import Capacity
from distdbg.runtime.parallel.reducer.construction import (
    agree_on_model,
    check_values,
    compare_values,
)
from distdbg.runtime.parallel.reducer.hooked import CommHook
from distdbg.runtime.parallel.reducer.measures import PassTimes
from distdbg.runtime.parallel.reducer.parameters import Parameter
from distdbg.runtime.parallel.reducer.reducer import Reducer
from distdbg.runtime.process.world import record_comm

_log = get_logger("parallel")


class GradientReducer:
    """Averages gradients over all ranks of a group, in buckets; `parameters` is a tree of arrays.

    A collective: all ranks make it, and MismatchError on all of them says where names, shapes, dtypes or
    their order differ. With `init_sync` the values of rank 0 are then written into the arrays of all ranks;
    arrays that cannot be written (JAX) are given to `broadcast` instead. The other arguments are those of
    DistributedDataParallel.
    """

    def __init__(
        self,
        parameters: Any,
        group: Group = None,
        *,
        init_sync: bool = True,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
    ) -> None:
        pg = resolve(group, "GradientReducer")
        if pg is None:
            raise UsageError("GradientReducer: this rank is not in the given group")
        self.group = pg
        self._tree = parameters
        self._leaves = _by_name(parameters, "GradientReducer")
        values = {name: _parameter(name, value) for name, value in self._leaves.items()}
        if not values:
            raise UsageError("GradientReducer: there are no parameters")
        self._index = {name: at for at, name in enumerate(values)}
        self._is_view = gradient_as_bucket_view
        self._is_syncing = True
        #: Gradients of passes without synchronization.
        self._kept: dict[str, Array] = {}
        #: The batch of the pass before, as World has it.
        self._batch: tuple[object, int] | None = None
        #: Names of the gradients that came in this pass so far.
        self._given: set[str] = set()
        described = [
            Parameter(name, FROM_NUMPY[value.dtype].label, tuple(value.shape))
            for name, value in values.items()
        ]
        capacity = Capacity.of(bucket_cap_mb)
        options = {
            "bucket_cap_mb": ",".join(f"{limit / 2**20:g}" for limit in capacity.limits),
            "find_unused_parameters": find_unused_parameters,
            "static_graph": static_graph,
            "init_sync": init_sync,
        }
        forms = tuple((one.name, one.form) for one in described)
        agree_on_model(pg, Description(forms, options, "GradientReducer", call_site()))
        level = level_of(pg.world)
        if init_sync:
            compare_values(pg, values, level)
            self._write_all(values)
        check_values(pg, values, level, init_sync)
        self._reducer = Reducer(
            described,
            list(values.values()),
            NumpyArrays(),
            pg,
            capacity=capacity,
            find_unused=find_unused_parameters,
            static_graph=static_graph,
            function="reduce",
        )
        if level is not DebugLevel.OFF:
            _log.info(
                "GradientReducer of %d arrays in %d buckets, %d ranks",
                len(values), len(self._reducer.buckets), pg.size(),
            )  # fmt: skip

    def _write_all(self, values: dict[str, Array]) -> None:
        for name, value in values.items():
            if not value.flags.writeable:
                raise UsageError(
                    f"GradientReducer: {name} cannot be written to",
                    hint="give init_sync=False, and begin with parameters = reducer.broadcast(parameters)",
                )
        with record_comm("DDP parameters"):
            for value in values.values():
                broadcast(value, group=self.group, group_src=0)

    def broadcast(self, tree: Any, group_src: int = 0) -> Any:
        """Return the tree with the values of one rank, for arrays that cannot be written to. A collective."""
        given = _by_name(tree, "GradientReducer.broadcast")
        copies = {name: np.array(_usable(name, value)) for name, value in given.items()}
        for name in sorted(copies):  # keys may come in another order elsewhere, as JAX sorts them
            broadcast(copies[name], group=self.group, group_src=group_src)
        return rebuild(tree, {name: _as(value, given[name]) for name, value in copies.items()})

    @property
    def buckets(self) -> list[list[str]]:
        """The names in each bucket, in the order in which they are reduced."""
        parameters = self._reducer.parameters
        return [[parameters[i].name for i in bucket.indices] for bucket in self._reducer.buckets]

    def register_comm_hook(self, state: object, hook: CommHook) -> None:
        """Reduce each bucket by `hook(state, bucket)`, which returns a future of the averages."""
        if not callable(hook):
            raise WrongTypeError(
                f"register_comm_hook: the hook is no function but of type {type(hook).__name__}"
            )
        self._reducer.set_hook(state, hook)

    # ------------------------------------------------------------------------------- a pass

    def reduce(self, gradients: Any) -> Any:
        """Return the averages of a tree of gradients, in the form of the parameters. A collective.

        A parameter that no rank has used is None, where that is allowed. The arrays are new ones; with
        gradient_as_bucket_view they are the reducer's own, until the next pass.
        Within no_sync() the gradients are kept, and added to those of the next pass.
        """
        if not self._is_syncing:
            self._keep(self._check_all(gradients))
            self._reducer.counts.forwards += 1
            return gradients
        with self._given_up_by_an_error():
            arrays = self._check_all(gradients)
        for name, array in arrays.items():
            self._take(name, array)
        return rebuild(self._tree, self._finish())

    def ready(self, name: str, gradient: Array) -> None:
        """Take one gradient of this pass; its bucket is reduced as soon as it is complete."""
        if not self._is_syncing:
            self._keep({name: self._check(name, gradient)})
            return
        with self._given_up_by_an_error():
            array = self._check(name, gradient)
        self._take(name, array)

    def finish(self) -> Any:
        """Return the averages of what ready() was given, in the form of the parameters. A collective."""
        if not self._is_syncing:
            self._reducer.counts.forwards += 1
            return None
        return rebuild(self._tree, self._finish())

    def abandon(self, reason: str = "abandon() was called") -> None:
        """Give up this pass, as where it has raised; gradients kept by no_sync() are forgotten. A collective.

        What is left of the pass is reduced with zeros, so that no rank waits or is a pass behind. Ranks that
        go on to reduce() or finish() get MismatchError with the reason.
        """
        self._given.clear()
        self._kept.clear()
        if not self._reducer.is_open:
            self._begin()
        self._reducer.give_up(reason or "no reason was given")

    @contextmanager
    def _given_up_by_an_error(self) -> Iterator[None]:
        """The others are told in this pass, and go on with the next one as this rank does."""
        try:
            yield
        except Exception as error:
            first_line = str(error).partition("\n")[0]
            with suppress(Exception):  # this rank's own error says more
                self.abandon(f"{type(error).__name__}: {first_line}")
            raise

    def _check_all(self, gradients: Any) -> dict[str, Array]:
        """Check all leaves of a tree before any of them is used."""
        given = _by_name(gradients, "GradientReducer.reduce")
        return {
            name: self._check(name, gradient)
            for name, gradient in given.items()
            if gradient is not None or name not in self._index
        }

    def _check(self, name: str, gradient: Array) -> Array:
        index = self._index.get(name)
        if index is None:
            raise UsageError(f"GradientReducer: {name or 'the gradient'} is none of the parameters")
        if name in self._given and self._is_syncing:
            raise UsageError(
                f"GradientReducer: {name} got its gradient twice in one pass",
                hint="end a pass by finish(), or by abandon() where something has raised",
            )
        array = _usable(name, gradient)
        _check_gradient(array, self._reducer.parameters[index])
        return array

    def _keep(self, arrays: dict[str, Array]) -> None:
        kept = self._kept
        for name, array in arrays.items():
            kept[name] = kept[name] + array if name in kept else array.copy()

    def _take(self, name: str, array: Array) -> None:
        if name in self._kept:
            array = self._kept.pop(name) + array
        if not self._reducer.is_open:
            self._begin()
        self._given.add(name)
        with self._closed_by_an_error():
            self._reducer.ready(self._index[name], array)

    @contextmanager
    def _closed_by_an_error(self) -> Iterator[None]:
        """After an error of an op or a hook: nobody knows what the others wait for."""
        try:
            yield
        except BaseException:
            self._given.clear()
            self._reducer.drop()
            raise

    def _begin(self) -> None:
        reducer = self._reducer
        reducer.counts.forwards += 1
        reducer.counts.batches = self._count_batches()
        reducer.moments = PassTimes()  # of a forward pass nothing is known
        reducer.begin_backward()
        reducer.open()

    def _count_batches(self) -> int:
        """Return the batches of the loop that this rank is in, since the pass before; 0: not known."""
        before, now = self._batch, self.group.world.batch
        self._batch = now
        if now is None or (before is not None and before[0] is now[0] and before[1] == now[1]):
            return 0  # several passes of one batch
        is_same = before is not None and before[0] is now[0]
        return now[1] - before[1] if before is not None and is_same else now[1]

    def _finish(self) -> dict[str, Any]:
        reducer = self._reducer
        with self._closed_by_an_error():
            if not reducer.is_open:
                self._begin()
            for name in list(self._kept):  # what only passes without synchronization had
                reducer.ready(self._index[name], self._kept.pop(name))
            used = reducer.finish()
        self._given.clear()
        found = {}
        for name, index in self._index.items():
            if used is None or used[index]:
                view = reducer.views[index]
                found[name] = view if self._is_view else view.copy()
        return {name: _as(value, self._leaves[name]) for name, value in found.items()}

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Keep the gradients of the block on this rank, until the first pass after it.

        All ranks need as many passes in it: MismatchError in the pass after it says who had others.
        """
        before = self._is_syncing
        self._is_syncing = False
        try:
            yield
        finally:
            self._is_syncing = before


def _usable(name: str, value: Array) -> Array:
    """An array with NumPy's methods: NumPy's, CuPy's, or the memory of another library's."""
    if isinstance(value, np.ndarray) or type(value).__module__.partition(".")[0] == "cupy":
        return value
    if torch_arrays.is_tensor(value):
        dtype = torch_arrays.dtype_of(value, name)
        return torch_arrays.as_numpy(value, dtype).view(dtype.to_numpy())
    if hasattr(value, "todense") or hasattr(value, "tocsr"):
        raise UsageError(
            f"GradientReducer: {name} is a sparse {type(value).__name__}; only dense gradients are reduced"
        )
    try:
        return np.from_dlpack(value) if hasattr(value, "__dlpack__") else np.asarray(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise UsageError(f"GradientReducer: {name} is no array on the CPU: {error}") from error


def _parameter(name: str, value: Array) -> Array:
    """An array whose gradient can be averaged; UsageError for all else."""
    if value is None:
        raise UsageError(f"GradientReducer: {name or 'the parameter'} is None, not an array")
    if isinstance(value, (bool, int, float, complex, np.generic)):
        raise UsageError(
            f"GradientReducer: {name or 'the parameter'} is not an array but of type "
            f"{type(value).__name__}",
            hint="give numpy.array(value), which can be written to",
        )
    array = _usable(name, value)
    dtype = from_numpy(array.dtype)
    if dtype is None or not (dtype.is_floating or dtype.is_complex):
        raise UsageError(
            f"GradientReducer: {name or 'the parameter'} has dtype {array.dtype}, which has no gradient",
            hint="only floating point and complex numbers can be averaged: leave it out of the parameters",
        )
    return array


def _check_gradient(gradient: Array, parameter: Parameter) -> None:
    if tuple(gradient.shape) != parameter.shape:
        raise UsageError(
            f"GradientReducer: {parameter.name} is {parameter.form}, its gradient has shape "
            f"{list(gradient.shape)}"
        )
    kind = gradient.dtype.kind
    is_real = not parameter.dtype.startswith("complex")
    if (from_numpy(gradient.dtype) is None and kind not in "fc") or (kind == "c" and is_real):
        raise UsageError(
            f"GradientReducer: {parameter.name} is {parameter.form}, its gradient has dtype "
            f"{gradient.dtype}"
        )


def _as(value: Array, leaf: Any) -> Any:
    """As the leaf's own library has its arrays, where that takes no NumPy arrays in their place."""
    if not torch_arrays.is_tensor(leaf) or not isinstance(value, np.ndarray):
        return value
    carrier = CARRIERS.get(FROM_NUMPY[value.dtype])
    tensor = sys.modules["torch"].from_numpy(value if carrier is None else value.view(carrier))
    return tensor if carrier is None else tensor.view(leaf.dtype)


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each leaf with its name."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from leaves(value, f"{path}.{key}" if path else str(key))
    elif isinstance(tree, (list, tuple)):
        for at, value in enumerate(tree):
            yield from leaves(value, f"{path}[{at}]")
    else:
        yield path, tree


def _by_name(tree: Any, function: str) -> dict[str, Any]:
    """All leaves; UsageError where two have one name, as those of {'a.b': x, 'a': {'b': y}}."""
    found: dict[str, Any] = {}
    for name, leaf in leaves(tree):
        if name in found:
            raise UsageError(
                f"{function}: two arrays have the name {name}",
                hint="names are the keys on the way, joined by dots: rename one of the keys",
            )
        found[name] = leaf
    return found


def rebuild(tree: Any, values: Mapping[str, Any], path: str = "") -> Any:
    """A tree of the same form, with these leaves by their names; None for those that have none."""
    if isinstance(tree, Mapping):
        made = {
            key: rebuild(value, values, f"{path}.{key}" if path else str(key))
            for key, value in tree.items()
        }
        return _mapping_like(tree, made)
    if isinstance(tree, (list, tuple)):
        parts = [rebuild(value, values, f"{path}[{at}]") for at, value in enumerate(tree)]
        kind: Any = type(tree)
        return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
    return values.get(path)


def _mapping_like(tree: Mapping[Any, Any], made: dict[Any, Any]) -> Any:
    kind: Any = type(tree)
    if kind is dict:
        return made
    if not isinstance(tree, dict):
        return kind(made)
    like = copy.copy(tree)  # a defaultdict has more to it than its items
    like.update(made)
    return like
