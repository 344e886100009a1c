"""The names of distdbg for type checkers; __init__.py loads them lazily."""

from distdbg.errors import (
    CollectiveError as CollectiveError,
    ConfigError as ConfigError,
    DistBackendError as DistBackendError,
    DistError as DistError,
    DistNetworkError as DistNetworkError,
    DistStoreError as DistStoreError,
    InternalError as InternalError,
    MismatchError as MismatchError,
    OpTimeout as OpTimeout,
    PeerLost as PeerLost,
    QueueEmptyError as QueueEmptyError,
    RendezvousError as RendezvousError,
    UsageError as UsageError,
)
from distdbg.launch.spawn import (
    spawn as spawn,
    start_processes as start_processes,
)
from distdbg.launch.threads import (
    run_threads as run_threads,
)
from distdbg.runtime.backends.registry import (
    Backend as Backend,
    BackendConfig as BackendConfig,
    DistributedBackendOptions as DistributedBackendOptions,
    get_default_backend_for_device as get_default_backend_for_device,
    is_backend_available as is_backend_available,
    is_gloo_available as is_gloo_available,
    is_mpi_available as is_mpi_available,
    is_nccl_available as is_nccl_available,
    is_ucc_available as is_ucc_available,
    is_xccl_available as is_xccl_available,
)
from distdbg.runtime.coalescing import (
    _coalescing_manager as _coalescing_manager,
)
from distdbg.runtime.collectives import (
    _all_gather_base as _all_gather_base,
    _reduce_scatter_base as _reduce_scatter_base,
    all_gather as all_gather,
    all_gather_coalesced as all_gather_coalesced,
    all_gather_into_tensor as all_gather_into_tensor,
    all_gather_single as all_gather_single,
    all_reduce as all_reduce,
    all_reduce_coalesced as all_reduce_coalesced,
    all_to_all as all_to_all,
    all_to_all_single as all_to_all_single,
    barrier as barrier,
    broadcast as broadcast,
    gather as gather,
    reduce as reduce,
    reduce_scatter as reduce_scatter,
    reduce_scatter_single as reduce_scatter_single,
    reduce_scatter_tensor as reduce_scatter_tensor,
    scatter as scatter,
)
from distdbg.runtime.debug_level import (
    DebugLevel as DebugLevel,
    get_debug_level as get_debug_level,
    set_debug_level as set_debug_level,
    set_debug_level_from_env as set_debug_level_from_env,
)
from distdbg.runtime.future import (
    Future as Future,
)
from distdbg.runtime.group import (
    GroupMember as GroupMember,
    GroupName as GroupName,
    ProcessGroup as ProcessGroup,
    group as group,
)
from distdbg.runtime.init import (
    default_pg_timeout as default_pg_timeout,
    destroy_process_group as destroy_process_group,
    init_process_group as init_process_group,
    is_available as is_available,
    is_initialized as is_initialized,
    is_torchelastic_launched as is_torchelastic_launched,
)
from distdbg.runtime.monitored_barrier import (
    monitored_barrier as monitored_barrier,
)
from distdbg.runtime.objects import (
    all_gather_object as all_gather_object,
    broadcast_object_list as broadcast_object_list,
    gather_object as gather_object,
    recv_object_list as recv_object_list,
    scatter_object_list as scatter_object_list,
    send_object_list as send_object_list,
)
from distdbg.runtime.options import (
    AllToAllOptions as AllToAllOptions,
    AllgatherOptions as AllgatherOptions,
    AllreduceCoalescedOptions as AllreduceCoalescedOptions,
    AllreduceOptions as AllreduceOptions,
    BarrierOptions as BarrierOptions,
    BroadcastOptions as BroadcastOptions,
    GatherOptions as GatherOptions,
    ReduceOptions as ReduceOptions,
    ReduceScatterOptions as ReduceScatterOptions,
    ScatterOptions as ScatterOptions,
)
from distdbg.runtime.p2p import (
    P2POp as P2POp,
    batch_isend_irecv as batch_isend_irecv,
    irecv as irecv,
    isend as isend,
    recv as recv,
    send as send,
)
from distdbg.runtime.queries import (
    get_backend as get_backend,
    get_backend_config as get_backend_config,
    get_global_rank as get_global_rank,
    get_group_rank as get_group_rank,
    get_node_local_rank as get_node_local_rank,
    get_pg_count as get_pg_count,
    get_process_group_ranks as get_process_group_ranks,
    get_rank as get_rank,
    get_world_size as get_world_size,
)
from distdbg.runtime.reduce_op import (
    ReduceOp as ReduceOp,
    make_premul_sum as make_premul_sum,
    reduce_op as reduce_op,
    supports_complex as supports_complex,
)
from distdbg.runtime.rendezvous import (
    register_rendezvous_handler as register_rendezvous_handler,
    rendezvous as rendezvous,
)
from distdbg.runtime.store import (
    FileStore as FileStore,
    HashStore as HashStore,
    PrefixStore as PrefixStore,
    Store as Store,
    TCPStore as TCPStore,
)
from distdbg.runtime.subgroups import (
    new_group as new_group,
    new_subgroups as new_subgroups,
    new_subgroups_by_enumeration as new_subgroups_by_enumeration,
    shrink_group as shrink_group,
    split_group as split_group,
)
from distdbg.runtime.work import (
    Work as Work,
    WorkResult as WorkResult,
)
from distdbg.runtime.world import (
    record_comm as record_comm,
)

__version__: str
__all__: list[str]
