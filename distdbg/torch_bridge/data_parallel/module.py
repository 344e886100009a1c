"""DistributedDataParallel: a torch module whose gradients are averaged over all ranks, as torch's own.

Autograd tells of each gradient (`register_post_accumulate_grad_hook`); the end of the backward pass is a
callback of its engine (autograd.py). Everything else is the Reducer's.

Every backward pass reduces the gradients that are then there, with what passes before have left: averages
that all ranks have, so the sum of averages comes out.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from typing import Any, Self

import torch

from distdbg.errors import CollectiveError, MismatchError, UsageError
from distdbg.log.log_levels import DebugLevel
from distdbg.log.logs import get_logger
from distdbg.ops.sites import call_site
from distdbg.record.known_marks import BACKWARD, FORWARD
from distdbg.runtime.api.marks import span
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.groups.levels import level_of
from distdbg.runtime.mesh import DeviceMesh
from distdbg.runtime.parallel.hooks import BuiltinCommHookType, builtin_hook
from distdbg.runtime.parallel.join import Join, Joinable
from distdbg.runtime.parallel.reducer.agreement import SKIPPED, Description, is_skipped, retell
from distdbg.runtime.parallel.reducer.buckets import Capacity
from distdbg.runtime.parallel.reducer.construction import (
    agree_on_model,
    check_values,
    compare_values,
)
from distdbg.runtime.parallel.reducer.hooked import CommHook
from distdbg.runtime.parallel.reducer.parameters import Parameter
from distdbg.runtime.parallel.reducer.reducer import Reducer
from distdbg.runtime.process.world import record_comm, world_of
from distdbg.torch_bridge.call_sites import skip_torch_in
from distdbg.torch_bridge.data_parallel.arrays import TorchArrays, refuse_sparse
from distdbg.torch_bridge.data_parallel.autograd import (
    BackwardPass,
    backward_hook,
    current_backward,
    engine,
    gradient_hook,
    preserve_versions,
)
from distdbg.torch_bridge.data_parallel.forwards import Forwards
from distdbg.torch_bridge.data_parallel.joining import (
    DataParallelJoinHook,
    agree_on_sync,
    find_common_rank,
)
from distdbg.torch_bridge.data_parallel.logging_data import construction_facts, runtime_facts
from distdbg.torch_bridge.data_parallel.model import (
    check_hook,
    described,
    group_of,
    parameters_of,
    states_of,
    tensors_in,
)
from distdbg.torch_bridge.data_parallel.owed import OptimizerWatch
from distdbg.torch_bridge.data_parallel.states import broadcast_states
from distdbg.torch_bridge.training.batches import mark_loaded_batches

_log = get_logger("parallel")
_BUFFERS = "DDP buffers"
_DENSE = torch.strided
#: Attributes that a copy makes for itself.
_MADE_ANEW = {
    "process_group", "reducer", "_facts", "_handles", "_pass", "_backward_span", "_join_config", "_forwards",
    "_optimizer_watch"}  # fmt: skip


class DistributedDataParallel(torch.nn.Module, Joinable):
    """Average the gradients of `module` over all ranks of a group while its backward pass runs.

    The arguments are torch's; `process_group` is one of distdbg's. A collective: all ranks make it, and
    MismatchError on all of them says where their models differ. Then all have the values of rank 0, unless
    `init_sync` is False.
    """

    def __init__(
        self,
        module: Any,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: ProcessGroup | None = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None,
        mixed_precision: Any = None,
        device_mesh: DeviceMesh | None = None,
        skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: list[int] | None = None,
        batched_grad_copy: bool = False,
        forward_sync_buffers: bool | None = None,
    ) -> None:
        super().__init__()
        Joinable.__init__(self)  # torch's Module does not call it
        refused = {
            "delay_all_reduce_named_params": delay_all_reduce_named_params,
            "param_to_hook_all_reduce": param_to_hook_all_reduce,
            "mixed_precision": mixed_precision,
            "skip_all_reduce_unused_params": skip_all_reduce_unused_params or None,
            "device_ids": device_ids or None,
            "output_device": output_device,
        }
        for name, value in refused.items():
            if value is not None:
                raise UsageError(f"DistributedDataParallel: {name} is not supported here")
        self.process_group = group_of(process_group, device_mesh)
        skip_torch_in(self.process_group.world.recorder, torch)
        self.module = module
        self.dim, self.device_ids, self.output_device = dim, None, None
        self.find_unused_parameters = find_unused_parameters
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.static_graph = static_graph
        if forward_sync_buffers is None:
            forward_sync_buffers = broadcast_buffers is not False
            syncs_buffers_at_init = forward_sync_buffers
        else:
            syncs_buffers_at_init = True
        self.forward_sync_buffers = forward_sync_buffers
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self.divides_by_initial_world_size = True
        #: None: the size of the group.
        self.divisor: float | None = None
        self.parameters_to_ignore = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        named = parameters_of(module, self.parameters_to_ignore)
        self._parameters_list = list(named.values())
        self._capacity = Capacity.of(bucket_cap_mb, bucket_cap_mb_list)
        self.device = self._parameters_list[0].device
        self._has_buffers = next(self._buffers_of(), None) is not None
        self._agree(init_sync, syncs_buffers_at_init)
        self._attach(named)
        if level_of(self.process_group.world) is not DebugLevel.OFF:
            lines = "\n".join(f"{name}: {value}" for name, value in self._facts.items())
            _log.info("DDP Initialized with:\n%s", lines)

    def _agree(self, init_sync: bool, syncs_buffers: bool) -> None:
        """Compare the models of all ranks, and give all the values of rank 0."""
        group = self.process_group
        options = {
            "bucket_cap_mb": ",".join(f"{limit / 2**20:g}" for limit in self._capacity.limits),
            "find_unused_parameters": self.find_unused_parameters,
            "static_graph": self.static_graph,
            "forward_sync_buffers": self.forward_sync_buffers,
            "init_sync": init_sync,
        }
        whole = described(self.module, self.parameters_to_ignore, syncs_buffers)
        maker = type(self).__name__
        agree_on_model(group, Description(whole, options, maker, call_site()))
        states = states_of(self.module, self.parameters_to_ignore, syncs_buffers)
        level = level_of(group.world)
        if init_sync:
            compare_values(group, states, level)
            with record_comm("DDP parameters and buffers"), torch.no_grad():
                broadcast_states(group, list(states.values()))
        check_values(group, states, level, init_sync)

    def _attach(self, named: Mapping[str, Any]) -> None:
        """Make a reducer, and have autograd tell of the gradients; no other rank is needed."""
        #: Whether a forward pass with synchronization waits for its backward pass.
        self._is_armed = False
        #: The backward pass that runs; autograd owns it, so it is gone when that has raised.
        self._pass: weakref.ref[BackwardPass] | None = None
        self._backward_span: span | None = None
        self._forwards = Forwards()
        parameters = [
            Parameter(name, str(value.dtype).removeprefix("torch."), tuple(value.shape))
            for name, value in named.items()
        ]
        self.reducer = Reducer(
            parameters,
            self._parameters_list,
            TorchArrays(),
            self.process_group,
            capacity=self._capacity,
            find_unused=self.find_unused_parameters,
            static_graph=self.static_graph,
        )
        mark_loaded_batches()
        self._optimizer_watch = OptimizerWatch(self.reducer, self._parameters_list)
        this = weakref.ref(self)
        values = self._parameters_list
        self.reducer.kept = lambda index: values[index].grad
        self._handles = [
            value.register_post_accumulate_grad_hook(gradient_hook(this, index))
            for index, value in enumerate(self._parameters_list)
        ]
        options = {
            "broadcast_buffers": int(self.forward_sync_buffers),
            "find_unused_parameters": int(self.find_unused_parameters),
            "gradient_as_bucket_view": int(self.gradient_as_bucket_view),
            "static_graph": int(self.static_graph),
        }
        self._facts = construction_facts(self.reducer, self.module, options)

    # ------------------------------------------------------------------------------- copies

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy of the module with a reducer of its own, over the same group. No collective."""
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        made._restore(deepcopy(self._lasting(), memo), self.process_group)
        return made

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: all but the group and the reducer, which are made anew. The default group only."""
        if self.process_group is not world_of(self.process_group).default:
            raise UsageError(
                f"DistributedDataParallel: only over the default group it can be pickled, not over "
                f"'{self.process_group.label}'",
                hint="pickle its module, or its state_dict()",
            )
        return self._lasting()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make it anew over the default group, which must have been initialized. No collective."""
        self._restore(state, group_of(None, None))

    def _lasting(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _MADE_ANEW}

    def _restore(self, state: dict[str, Any], group: ProcessGroup) -> None:
        super().__setstate__(state)
        Joinable.__init__(self)  # a copy is in no block
        self.process_group = group
        skip_torch_in(group.world.recorder, torch)
        self._attach(parameters_of(self.module, self.parameters_to_ignore))

    @property
    def broadcast_buffers(self) -> bool:
        """The older name of forward_sync_buffers."""
        return self.forward_sync_buffers

    @broadcast_buffers.setter
    def broadcast_buffers(self, value: bool) -> None:
        self.forward_sync_buffers = value

    # ------------------------------------------------------------------------------- a pass

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Run the module, and prepare to reduce the gradients of its backward pass."""
        does_sync = torch.is_grad_enabled() and self.require_backward_grad_sync
        self._settle()
        is_again = self.reducer.counts.forwards > 0  # without a backward pass between
        if does_sync:
            self.reducer.begin_forward()
            self._forwards.begin(self.module.training)
        is_joining = self._notify_join()
        if self.will_sync_module_buffers():
            root = find_common_rank(self.process_group, True) if is_joining else 0
            self.sync_buffers(root, is_again)
        if is_joining:
            agree_on_sync(self.process_group, self.require_backward_grad_sync)
        with span(FORWARD):
            output = self.module(*inputs, **kwargs)
        self.require_forward_param_sync = does_sync
        if does_sync:
            self._is_armed = True
            this = weakref.ref(self)
            for tensor in tensors_in(output):
                if tensor.requires_grad:
                    self._forwards.follow(tensor, backward_hook(this))
        return output

    def _notify_join(self) -> bool:
        """Whether a join context is around this pass; then how many ranks are in it is known."""
        work = Join.notify_join_context(self)
        if work is not None:
            work.wait()
            if not self.divides_by_initial_world_size:
                self.divisor = float(work.result()[0].item())
        return self._join_config.enable

    def begin_backward(self) -> None:
        """A backward pass has come to an output of this module; autograd calls it."""
        if self._running() is not None:
            return
        self._settle()
        # Not armed: another one after the same forward pass, which is reduced as well.
        if self._is_armed or self.require_backward_grad_sync:
            self._begin()

    def _begin(self) -> BackwardPass:
        begun = BackwardPass(self)
        engine.queue_callback(begun)
        self._pass = weakref.ref(begun)
        self._backward_span = span(BACKWARD)
        self._backward_span.__enter__()
        self._forwards.go_backward(self.reducer.counts)
        self.reducer.begin_backward()
        return begun

    def _running(self) -> BackwardPass | None:
        return None if self._pass is None else self._pass()

    def _settle(self) -> None:
        """Before something begins: end a backward pass that has raised, for the ranks that wait in it."""
        if self._running() is not None and current_backward() != -1:
            return
        self._close()
        if self.reducer.is_open:
            self._is_armed = False
            self.reducer.give_up("its backward pass raised an error")

    def _close(self) -> None:
        self._pass = None
        begun, self._backward_span = self._backward_span, None
        if begun is not None:
            begun.__exit__(None, None, None)

    def take_gradient(self, index: int, parameter: Any) -> None:
        """A parameter has its gradient; autograd calls it."""
        running = self._running()
        if running is None:
            if not self._is_armed:
                return
            self._settle()
            running = self._begin()
        try:
            if not self.reducer.is_open:
                self.reducer.open(self.divisor)
            gradient = parameter.grad
            if gradient.layout is not _DENSE:
                refuse_sparse(self.reducer.parameters[index].name, gradient)
            self.reducer.ready(index, gradient)
        except BaseException:
            self._is_armed = self._is_armed and self.reducer.is_open
            self._close()  # autograd ends its pass here; a traceback may keep `running`
            raise

    def end_backward(self) -> None:
        """The backward pass is over; without a gradient (torch.autograd.grad) it was none of a model's."""
        try:
            if self.reducer.is_open:
                self._is_armed = False
                self.reducer.partial.awaits_more = self._forwards.awaits_more
                with torch.no_grad():
                    self._write_back(self.reducer.finish())
                self._optimizer_watch.follow()
        finally:
            self._close()

    def _write_back(self, used: Sequence[bool] | None) -> None:
        """Give each parameter its average; one that no rank has used keeps what it has."""
        views = self.reducer.views
        into, averages = [], []
        for index, parameter in enumerate(self._parameters_list):
            if used is not None and not used[index]:
                continue
            gradient, view = parameter.grad, views[index]
            if self.gradient_as_bucket_view:
                if gradient is not view:
                    parameter.grad = view
            elif gradient is None:
                parameter.grad = view.clone()
            else:
                into.append(gradient)
                averages.append(view)
        if into:
            torch._foreach_copy_(into, averages)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate gradients on this rank alone, until the first pass after the block."""
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    # ------------------------------------------------------------------------------- states

    def will_sync_module_buffers(self) -> bool:
        """Return whether the next forward pass broadcasts the buffers."""
        return self.require_forward_param_sync and self.forward_sync_buffers and self._has_buffers

    def _buffers_of(self) -> Iterator[Any]:
        """Looked up each time: a module may replace them."""
        for name, value in self.module.named_buffers():
            if name not in self.parameters_to_ignore:
                yield value

    def sync_buffers(self, root: int, is_again: bool = False) -> None:
        """Give all ranks the buffers of group rank `root`."""
        buffers = list(self._buffers_of())
        name = f"{_BUFFERS}; {SKIPPED}" if is_again else _BUFFERS
        try:
            with (
                record_comm(name),
                torch.no_grad(),
                preserve_versions(tuple(buffers)),
            ):
                broadcast_states(self.process_group, buffers, root)
        except MismatchError as error:
            reported = retell(error, self.reducer.passes + 1, name)
            if reported is error:
                raise
            if is_again and is_skipped(error):
                self._is_armed = False
                with suppress(CollectiveError):  # the first one tells
                    self.reducer.rejoin(error)
            raise reported from error

    def sync_states(self, root: int) -> None:
        """Give all ranks the parameters, and the buffers that are synchronized, of group rank `root`."""
        states = states_of(self.module, self.parameters_to_ignore, self.forward_sync_buffers)
        with torch.no_grad():
            broadcast_states(self.process_group, list(states.values()), root)

    # -------------------------------------------------------------------------------- hooks

    def register_comm_hook(self, state: object, hook: CommHook) -> None:
        """Reduce each bucket by `hook(state, bucket)`, which returns a future of the averages.

        A collective: all ranks register the same hook.
        """
        check_hook(hook)
        self._agree_on_hook(hook)
        self.reducer.set_hook(state, hook)

    def _agree_on_hook(self, hook: CommHook) -> None:
        """MismatchError on all ranks unless all register the same one; a collective."""
        name = getattr(hook, "__qualname__", type(hook).__name__)
        mine = Description((), {"comm hook": name}, "register_comm_hook", call_site())
        with record_comm("DDP comm hook"):
            agree_on_model(self.process_group, mine)

    def _register_builtin_comm_hook(self, comm_hook_type: BuiltinCommHookType) -> None:
        hook = builtin_hook(comm_hook_type)
        self._agree_on_hook(hook)
        self.reducer.set_hook(self.process_group, hook)

    # --------------------------------------------------------------------------------- join

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:
        """Return the block in which ranks may have different numbers of batches."""
        return Join(
            [self],
            enable,
            throw_on_early_termination,
            divide_by_initial_world_size=divide_by_initial_world_size,
        )

    def join_hook(self, **kwargs: Any) -> DataParallelJoinHook:
        """Return what a context for uneven batches calls on a rank that has none left."""
        divides = bool(kwargs.get("divide_by_initial_world_size", True))
        return DataParallelJoinHook(self, divides)

    @property
    def join_device(self) -> Any:
        """Where the model is."""
        return self.device

    @property
    def join_process_group(self) -> ProcessGroup:
        """The group whose ranks have uneven batches."""
        return self.process_group

    # -------------------------------------------------------------------------------- facts

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        """Facts about the model, its buckets and the times of passes, by torch's names."""
        return {**self._facts, **runtime_facts(self.reducer)}

    def _set_ddp_runtime_logging_sample_rate(self, sample_rate: int) -> None:
        if sample_rate < 1:
            raise UsageError(f"the sample rate is 1 or more, not {sample_rate}")
        self.reducer.measures.interval = sample_rate

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(
        module: Any, params_and_buffers_to_ignore: Sequence[str]
    ) -> None:
        module._ddp_params_and_buffers_to_ignore = params_and_buffers_to_ignore

    def _remove_autograd_hooks(self) -> None:
        for handle in self._handles:
            handle.remove()
