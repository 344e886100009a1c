"""The names of distdbg for type checkers; __init__.py loads them lazily."""

from distdbg import device_mesh as device_mesh
from distdbg import distributed_c10d as distributed_c10d
from distdbg import functional as functional
from distdbg import multiprocessing as multiprocessing
from distdbg.check.latent import (
    LatentWarning as LatentWarning,
)
from distdbg.debugger.breakpoint import breakpoint as breakpoint
from distdbg.errors import (
    BufferChangedError as BufferChangedError,
)
from distdbg.errors import (
    CollectiveError as CollectiveError,
)
from distdbg.errors import (
    ConfigError as ConfigError,
)
from distdbg.errors import (
    DebuggerQuit as DebuggerQuit,
)
from distdbg.errors import (
    DistBackendError as DistBackendError,
)
from distdbg.errors import (
    DistError as DistError,
)
from distdbg.errors import (
    DistNetworkError as DistNetworkError,
)
from distdbg.errors import (
    DistStoreError as DistStoreError,
)
from distdbg.errors import (
    DivergedError as DivergedError,
)
from distdbg.errors import (
    InternalError as InternalError,
)
from distdbg.errors import (
    JobAborted as JobAborted,
)
from distdbg.errors import (
    MismatchError as MismatchError,
)
from distdbg.errors import (
    NonFiniteError as NonFiniteError,
)
from distdbg.errors import (
    OpTimeout as OpTimeout,
)
from distdbg.errors import (
    PeerLost as PeerLost,
)
from distdbg.errors import (
    QueueEmptyError as QueueEmptyError,
)
from distdbg.errors import (
    RankLeft as RankLeft,
)
from distdbg.errors import (
    RecordError as RecordError,
)
from distdbg.errors import (
    RendezvousClosedError as RendezvousClosedError,
)
from distdbg.errors import (
    RendezvousError as RendezvousError,
)
from distdbg.errors import (
    UsageError as UsageError,
)
from distdbg.launch.spawn import (
    spawn as spawn,
)
from distdbg.launch.spawn import (
    start_processes as start_processes,
)
from distdbg.launch.threads import (
    run_threads as run_threads,
)
from distdbg.log.log_levels import (
    DebugLevel as DebugLevel,
)
from distdbg.ops.reduce_op import (
    ReduceOp as ReduceOp,
)
from distdbg.ops.reduce_op import (
    make_premul_sum as make_premul_sum,
)
from distdbg.ops.reduce_op import (
    reduce_op as reduce_op,
)
from distdbg.ops.reduce_op import (
    supports_complex as supports_complex,
)
from distdbg.record import (
    record as record,
)
from distdbg.runtime.api.assert_same import (
    assert_same as assert_same,
)
from distdbg.runtime.api.coalescing import (
    _coalescing_manager as _coalescing_manager,
)
from distdbg.runtime.api.collectives import (
    _all_gather_base as _all_gather_base,
)
from distdbg.runtime.api.collectives import (
    _reduce_scatter_base as _reduce_scatter_base,
)
from distdbg.runtime.api.collectives import (
    all_gather as all_gather,
)
from distdbg.runtime.api.collectives import (
    all_gather_coalesced as all_gather_coalesced,
)
from distdbg.runtime.api.collectives import (
    all_gather_into_tensor as all_gather_into_tensor,
)
from distdbg.runtime.api.collectives import (
    all_gather_single as all_gather_single,
)
from distdbg.runtime.api.collectives import (
    all_reduce as all_reduce,
)
from distdbg.runtime.api.collectives import (
    all_reduce_coalesced as all_reduce_coalesced,
)
from distdbg.runtime.api.collectives import (
    all_to_all as all_to_all,
)
from distdbg.runtime.api.collectives import (
    all_to_all_single as all_to_all_single,
)
from distdbg.runtime.api.collectives import (
    barrier as barrier,
)
from distdbg.runtime.api.collectives import (
    broadcast as broadcast,
)
from distdbg.runtime.api.collectives import (
    gather as gather,
)
from distdbg.runtime.api.collectives import (
    reduce as reduce,
)
from distdbg.runtime.api.collectives import (
    reduce_scatter as reduce_scatter,
)
from distdbg.runtime.api.collectives import (
    reduce_scatter_single as reduce_scatter_single,
)
from distdbg.runtime.api.collectives import (
    reduce_scatter_tensor as reduce_scatter_tensor,
)
from distdbg.runtime.api.collectives import (
    scatter as scatter,
)
from distdbg.runtime.api.marks import (
    mark as mark,
)
from distdbg.runtime.api.marks import (
    span as span,
)
from distdbg.runtime.api.monitored_barrier import (
    monitored_barrier as monitored_barrier,
)
from distdbg.runtime.api.objects import (
    all_gather_object as all_gather_object,
)
from distdbg.runtime.api.objects import (
    broadcast_object_list as broadcast_object_list,
)
from distdbg.runtime.api.objects import (
    gather_object as gather_object,
)
from distdbg.runtime.api.objects import (
    recv_object_list as recv_object_list,
)
from distdbg.runtime.api.objects import (
    scatter_object_list as scatter_object_list,
)
from distdbg.runtime.api.objects import (
    send_object_list as send_object_list,
)
from distdbg.runtime.api.options import (
    AllgatherOptions as AllgatherOptions,
)
from distdbg.runtime.api.options import (
    AllreduceCoalescedOptions as AllreduceCoalescedOptions,
)
from distdbg.runtime.api.options import (
    AllreduceOptions as AllreduceOptions,
)
from distdbg.runtime.api.options import (
    AllToAllOptions as AllToAllOptions,
)
from distdbg.runtime.api.options import (
    BarrierOptions as BarrierOptions,
)
from distdbg.runtime.api.options import (
    BroadcastOptions as BroadcastOptions,
)
from distdbg.runtime.api.options import (
    GatherOptions as GatherOptions,
)
from distdbg.runtime.api.options import (
    ReduceOptions as ReduceOptions,
)
from distdbg.runtime.api.options import (
    ReduceScatterOptions as ReduceScatterOptions,
)
from distdbg.runtime.api.options import (
    ScatterOptions as ScatterOptions,
)
from distdbg.runtime.api.p2p import (
    P2POp as P2POp,
)
from distdbg.runtime.api.p2p import (
    batch_isend_irecv as batch_isend_irecv,
)
from distdbg.runtime.api.p2p import (
    irecv as irecv,
)
from distdbg.runtime.api.p2p import (
    isend as isend,
)
from distdbg.runtime.api.p2p import (
    recv as recv,
)
from distdbg.runtime.api.p2p import (
    send as send,
)
from distdbg.runtime.api.process_groups import (
    GroupMember as GroupMember,
)
from distdbg.runtime.api.process_groups import (
    GroupName as GroupName,
)
from distdbg.runtime.api.process_groups import (
    ProcessGroup as ProcessGroup,
)
from distdbg.runtime.api.process_groups import (
    group as group,
)
from distdbg.runtime.api.queries import (
    get_backend as get_backend,
)
from distdbg.runtime.api.queries import (
    get_backend_config as get_backend_config,
)
from distdbg.runtime.api.queries import (
    get_global_rank as get_global_rank,
)
from distdbg.runtime.api.queries import (
    get_group_rank as get_group_rank,
)
from distdbg.runtime.api.queries import (
    get_node_local_rank as get_node_local_rank,
)
from distdbg.runtime.api.queries import (
    get_pg_count as get_pg_count,
)
from distdbg.runtime.api.queries import (
    get_process_group_ranks as get_process_group_ranks,
)
from distdbg.runtime.api.queries import (
    get_rank as get_rank,
)
from distdbg.runtime.api.queries import (
    get_world_size as get_world_size,
)
from distdbg.runtime.api.shared_arrays import (
    SharedArrays as SharedArrays,
)
from distdbg.runtime.api.shared_arrays import (
    empty as empty,
)
from distdbg.runtime.api.shared_arrays import (
    shared_arrays as shared_arrays,
)
from distdbg.runtime.api.shared_arrays import (
    zeros as zeros,
)
from distdbg.runtime.api.subgroups import (
    new_group as new_group,
)
from distdbg.runtime.api.subgroups import (
    new_subgroups as new_subgroups,
)
from distdbg.runtime.api.subgroups import (
    new_subgroups_by_enumeration as new_subgroups_by_enumeration,
)
from distdbg.runtime.api.subgroups import (
    shrink_group as shrink_group,
)
from distdbg.runtime.api.subgroups import (
    split_group as split_group,
)
from distdbg.runtime.backends.nccl.options import (
    NcclOptions as NcclOptions,
)
from distdbg.runtime.backends.registry import (
    Backend as Backend,
)
from distdbg.runtime.backends.registry import (
    BackendConfig as BackendConfig,
)
from distdbg.runtime.backends.registry import (
    DistributedBackendOptions as DistributedBackendOptions,
)
from distdbg.runtime.backends.registry import (
    get_default_backend_for_device as get_default_backend_for_device,
)
from distdbg.runtime.backends.registry import (
    is_backend_available as is_backend_available,
)
from distdbg.runtime.backends.registry import (
    is_gloo_available as is_gloo_available,
)
from distdbg.runtime.backends.registry import (
    is_mpi_available as is_mpi_available,
)
from distdbg.runtime.backends.registry import (
    is_nccl_available as is_nccl_available,
)
from distdbg.runtime.backends.registry import (
    is_ucc_available as is_ucc_available,
)
from distdbg.runtime.backends.registry import (
    is_xccl_available as is_xccl_available,
)
from distdbg.runtime.groups.levels import (
    get_debug_level as get_debug_level,
)
from distdbg.runtime.groups.levels import (
    set_debug_level as set_debug_level,
)
from distdbg.runtime.groups.levels import (
    set_debug_level_from_env as set_debug_level_from_env,
)
from distdbg.runtime.handles.future import (
    Future as Future,
)
from distdbg.runtime.handles.work import (
    Work as Work,
)
from distdbg.runtime.handles.work import (
    WorkResult as WorkResult,
)
from distdbg.runtime.mesh import (
    DeviceMesh as DeviceMesh,
)
from distdbg.runtime.mesh import (
    init_device_mesh as init_device_mesh,
)
from distdbg.runtime.parallel import (
    DistributedSampler as DistributedSampler,
)
from distdbg.runtime.parallel import (
    GradientReducer as GradientReducer,
)
from distdbg.runtime.parallel import (
    Join as Join,
)
from distdbg.runtime.parallel import (
    Joinable as Joinable,
)
from distdbg.runtime.parallel import (
    JoinHook as JoinHook,
)
from distdbg.runtime.parallel import (
    batches as batches,
)
from distdbg.runtime.parallel.hooks import (
    BuiltinCommHookType as BuiltinCommHookType,
)
from distdbg.runtime.parallel.hooks import (
    DDPCommHookType as DDPCommHookType,
)
from distdbg.runtime.parallel.hooks import (
    PowerSGDState as PowerSGDState,
)
from distdbg.runtime.parallel.hooks import (
    register_ddp_comm_hook as register_ddp_comm_hook,
)
from distdbg.runtime.parallel.reducer.bucket import (
    GradBucket as GradBucket,
)
from distdbg.runtime.process.destroy import (
    destroy_process_group as destroy_process_group,
)
from distdbg.runtime.process.init import (
    default_pg_timeout as default_pg_timeout,
)
from distdbg.runtime.process.init import (
    init_process_group as init_process_group,
)
from distdbg.runtime.process.init import (
    is_available as is_available,
)
from distdbg.runtime.process.init import (
    is_initialized as is_initialized,
)
from distdbg.runtime.process.init import (
    is_torchelastic_launched as is_torchelastic_launched,
)
from distdbg.runtime.process.world import (
    record_comm as record_comm,
)
from distdbg.runtime.rendezvous import (
    register_rendezvous_handler as register_rendezvous_handler,
)
from distdbg.runtime.rendezvous import (
    rendezvous as rendezvous,
)
from distdbg.runtime.store import (
    FileStore as FileStore,
)
from distdbg.runtime.store import (
    HashStore as HashStore,
)
from distdbg.runtime.store import (
    PrefixStore as PrefixStore,
)
from distdbg.runtime.store import (
    Store as Store,
)
from distdbg.runtime.store import (
    TCPStore as TCPStore,
)
from distdbg.torch_bridge.data_parallel import (
    DistributedDataParallel as DistributedDataParallel,
)

__version__: str
__all__: list[str]
