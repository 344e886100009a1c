"""What moves the bytes of a group: our CPU engine, and backends registered by others.

by_device             the engine of a group that has one for arrays on the host and one for arrays on a GPU
checked               checks for backends that are not ours, by a control group beside the backend
compile               from a Call on this rank's arrays to a native plan, and to the key that says when to
                      reuse it
cpu                   the CPU engine: carries out the ops of one group through shared memory and between hosts
                      (native/core)
failures              turns a native fault into the public error
foreign               makes an object with torch's method names look like an Engine
gpu                   arrays on a GPU in groups of our own engine, without NCCL
mpi                   groups over MPI
nap                   how long a wait in Python sleeps between two looks at a library that wakes nobody
nccl                  groups over NCCL
on_device             what the CPU engine asks of what carries out ops on arrays of a GPU
pending               an op of the CPU engine that was started and not yet waited for
place_check           whether all ranks have the arrays of an op on a GPU, found out before it
planner               from a Call on this rank's arrays to a native Plan, made once per shape
progress              a thread that looks after ops that nobody waits for, so that they go on meanwhile
recorded              the record of a backend that is not ours; our own engine records itself
registry              which backends there are, by name and device, and how an engine is made from a name
self_messages         messages of a rank to itself
shared_memory         how the ranks of a group come together
staging               arrays on a GPU through an engine of the host
reported_difference   by what words the other ranks learn of a difference that one rank finds alone
torch_backends        what a backend of torch's own (ProcessGroupGloo and its kin) takes
tracing               logs each op of a group when it is issued and when it has ended
ucc                   UCC, the Unified Collective Communication library, through ctypes
waiting               how long a wait stays awake before it sleeps in the kernel, from cores and ranks
"""
