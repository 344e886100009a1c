"""The patches of DistributedDataParallel: names for its ops, and who got no gradient.

DDP asks nobody before it reduces: its ops come from C++. `bucket_of` is asked by whoever hands an
all_reduce on (the tap, our backend); everything else that DDP sends is named where Python starts it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from functools import wraps
from operator import attrgetter
from typing import Any

from distdbg.log.logs import get_logger
from distdbg.record.known_marks import FORWARD, NO_GRADIENT, NOT_REDUCED
from distdbg.runtime.api.marks import begin_span, end_span, mark
from distdbg.runtime.parallel.reducer.names import list_names
from distdbg.torch_bridge.training.ddp_model import Model
from distdbg.torch_bridge.training.naming import named, naming
from distdbg.torch_bridge.training.passes import TrainingSteps

_log = get_logger("torch")

#: The models that a backward pass which runs now has not reduced; asked at each all_reduce.
armed: list[Model] = []


class _Reducing(threading.local):
    """The model whose reducer has called for the op that this thread is in; None: that is not known."""

    model: Model | None = None


reducing = _Reducing()

#: Make of a group the one that a reducer is given instead; of whoever watches (the tap).
group_makers: list[Callable[[Any], Any]] = []

#: Functions that DDP calls in Python, in its module, and what their ops are.
_FUNCTIONS = {
    "_verify_param_shape_across_processes": "DDP compares the shapes of parameters",
    "_sync_module_states": "DDP broadcasts parameters and buffers",
}
_METHODS = {"_sync_buffers": "DDP broadcasts buffers"}
#: In what DDP raises.
_NOT_FINISHED = "finished reduction in the prior iteration"
_REBUILDS = "DDP agrees on the order of buckets"


def bucket_of(group_name: str, numel: int) -> str:
    """The bucket that an all_reduce of so many elements on this group is; '' if it is none, or not known."""
    if reducing.model is not None:
        return reducing.model.next_name(numel) if reducing.model in armed else ""
    found = [
        model
        for model in armed
        if model.group_name == group_name and not model.is_reported and model.may_reduce(numel)
    ]
    if len(found) == 1 and not found[0].is_unsure:
        return found[0].next_name(numel)
    for model in found:
        model.is_unsure = True
    return ""


_is_complete = attrgetter("is_complete")


class DdpPatch:
    """The patches, and what they know of the models of this process."""

    def __init__(self, steps: TrainingSteps) -> None:
        self._steps = steps
        self._models: weakref.WeakKeyDictionary[Any, Model] = weakref.WeakKeyDictionary()
        #: That of each reducer. C++ alone would not keep what is Python's of it.
        self._groups: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        #: The one whose forward pass has ended last.
        self._last: Model | None = None
        #: Those whose forward pass has ended, until all buckets are on their way.
        self._ready: list[Model] = []
        #: The others, whose gradients a pass leaves as they are, or does not reduce.
        self._unready: list[Model] = []
        #: The model whose forward pass runs has ordered its buckets anew, which is done once.
        self._has_rebuilt = False
        #: What the reducer made last was given: parameters, and the buckets of indices.
        self._given: tuple[Any, Any] | None = None

    def apply(self, torch: Any, module: Any) -> None:
        """Patch `torch.nn.parallel.distributed`."""
        kind, reducer = module.DistributedDataParallel, torch.distributed.Reducer
        for name, words in _FUNCTIONS.items():
            if hasattr(module, name):
                setattr(module, name, naming(getattr(module, name), words))
        for name, words in _METHODS.items():
            if hasattr(kind, name):
                setattr(kind, name, naming(getattr(kind, name), words))
        if hasattr(reducer, "_rebuild_buckets"):
            reducer._rebuild_buckets = self._rebuilding(reducer._rebuild_buckets)
        reducer.__init__ = self._making(reducer.__init__, torch.distributed.ProcessGroup)
        reducer.prepare_for_backward = self._preparing(reducer.prepare_for_backward)
        kind._ddp_init_helper = self._helping(kind._ddp_init_helper)
        kind.forward = self._forward(kind.forward, torch)
        kind.register_comm_hook = self._hooking(kind.register_comm_hook)
        self._steps.before_backward.append(self._before_backward)
        self._steps.after_backward.append(self._after_backward)

    # ------------------------------------------------------------------------------- buckets

    def _making(self, real: Callable[..., Any], group_class: type) -> Callable[..., Any]:
        @wraps(real)
        def __init__(reducer: Any, params: Any, bucket_indices: Any, *args: Any, **kw: Any) -> None:
            self._given = params, bucket_indices
            given = self._groups_for(reducer, group_class, (*args, *kw.values()))
            args, kw = tuple(given[: len(args)]), dict(zip(kw, given[len(args) :], strict=True))
            real(reducer, params, bucket_indices, *args, **kw)

        return __init__

    def _groups_for(self, reducer: Any, group_class: type, given: Sequence[Any]) -> list[Any]:
        found = []
        for value in given:
            for make in group_makers if type(value) is group_class else ():
                value = self._groups[reducer] = make(value)
            found.append(value)
        return found

    def _helping(self, real: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(real)
        def _ddp_init_helper(ddp: Any, *args: Any, **kwargs: Any) -> Any:
            self._take_given()
            result = real(ddp, *args, **kwargs)
            given = self._take_given()
            if given is not None:
                model = self._models[ddp] = Model(ddp, *given)
                tell = getattr(self._groups.get(ddp.reducer), "tell_model", None)
                if tell is not None:
                    tell(model)
            return result

        return _ddp_init_helper

    def _take_given(self) -> tuple[Any, Any] | None:
        given, self._given = self._given, None
        return given

    def _rebuilding(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """DDP asks in each forward pass."""
        named_real = naming(real, _REBUILDS)

        @wraps(real)
        def _rebuild_buckets(reducer: Any) -> Any:
            return real(reducer) if self._has_rebuilt else named_real(reducer)

        return _rebuild_buckets

    def _hooking(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """A hook of Python's is given its bucket: its ops have that name."""

        @wraps(real)
        def register_comm_hook(ddp: Any, state: object, hook: Any) -> Any:
            model = self._models.get(ddp)
            if model is None or not callable(hook):
                return real(ddp, state, hook)

            @wraps(hook)
            def named_hook(state: object, bucket: Any) -> Any:
                if isinstance(bucket, tuple):  # of the reducer that is made of Python
                    return hook(state, bucket)
                with named(model.reduced(bucket.index())):
                    return hook(state, bucket)

            return real(ddp, state, named_hook)

        return register_comm_hook

    # -------------------------------------------------------------------------------- passes

    def _forward(self, real: Callable[..., Any], torch: Any) -> Callable[..., Any]:
        is_compiling = torch.compiler.is_compiling

        @wraps(real)
        def forward(ddp: Any, *inputs: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return real(ddp, *inputs, **kwargs)
            self._has_rebuilt = getattr(ddp, "_has_rebuilt_buckets", False)
            model = self._models.get(ddp)
            if model is not None:
                model.is_forwarded = True
            begun = begin_span(FORWARD)
            try:
                return real(ddp, *inputs, **kwargs)
            except RuntimeError as error:
                self._tell_names(ddp, error)
                raise
            finally:
                end_span(begun)
                self._has_rebuilt = False

        return forward

    def _tell_names(self, ddp: Any, error: RuntimeError) -> None:
        """DDP has noticed what happened a step ago; at most it knows indices."""
        model = self._models.get(ddp)
        if model is not None and model.unused and _NOT_FINISHED in str(error):
            error.add_note(f"distdbg: no gradient for {list_names(model.unused)}")

    def _preparing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """DDP calls it at the end of a forward pass, a compiled one too, before a pass that reduces."""

        @wraps(real)
        def prepare_for_backward(reducer: Any, *args: Any, **kwargs: Any) -> Any:
            result = real(reducer, *args, **kwargs)
            self._arm(reducer)
            return result

        return prepare_for_backward

    def _arm(self, reducer: Any) -> None:
        model = self._last
        ddp = None if model is None else model.ddp()
        if ddp is None or ddp.reducer is not reducer:
            for model in self._models.values():
                ddp = model.ddp()
                if ddp is not None and ddp.reducer is reducer:
                    break
            else:
                return
            self._last = model
        assert model is not None
        model.begin(ddp)
        if self._ready:
            self._ready = [one for one in self._ready if one is not model and one.ddp() is not None]
        self._ready.append(model)

    def _before_backward(self) -> None:
        self._unready = [model for model in self._models.values() if model not in self._ready]
        for model in (*self._ready, *self._unready):
            model.before_backward()
        armed[:] = self._ready

    def _after_backward(self, is_well: bool) -> None:
        armed.clear()
        for model in (*self._ready, *self._unready) if is_well else ():
            self._note_gradients(model)
        self._unready = []
        if not all(map(_is_complete, self._ready)):
            self._ready = [model for model in self._ready if not model.is_complete]
            self._tell_unused(self._ready if is_well else ())
        elif self._ready:
            self._ready.clear()

    def _note_gradients(self, model: Model) -> None:
        """A pass has ended; one that gave gradients past the forward pass of DDP is told once per step.

        Two passes of one step may have one forward pass, whose reduction then is that of the first.
        """
        # Whether its buckets are on their way says less: those of another model may be as large.
        if next(model.with_gradient(), None) is None:
            return
        done = self._steps.done
        is_meant = not getattr(model.ddp(), "require_backward_grad_sync", False)  # no_sync()
        if not (model.is_forwarded or is_meant) and model.steps_done < done:
            mark(NOT_REDUCED + list_names([*model.with_gradient()]), self._steps.current)
        model.is_forwarded, model.steps_done = False, done

    def _tell_unused(self, models: Sequence[Model]) -> None:
        for model in models:
            model.unused = model.without_gradient()
            if model.unused:
                words = list_names(model.unused)
                mark(NO_GRADIENT + words, self._steps.current)
                _log.info("step %d: no gradient for %s", self._steps.current, words)
