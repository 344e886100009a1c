"""Groups over NCCL: `backend="nccl"`. The only place that imports CuPy, and only when it is asked for.

library, nccl_functions   CuPy and NCCL of this process, and what CuPy does not bind
options                   what a program may choose
wire, reductions          what NCCL has of dtypes and reduce ops, and how the rest travels
steps                     from a Call to calls of NCCL: plain data
device_side, streams      what an op has on its device: memory, streams, events
alike, arrivals           what ranks have, compared when a group is made; waits for what all of them say
communicators, splitting  a communicator for each group
pairs                     and one for each two ranks, for messages that are in no batch
pending, watchdog         an op in flight, and the thread that looks after all of them
failures                  what an error of NCCL says, and what to do about it
ending, destroying        how a group is given up, and how it is destroyed
calling                   queues one op
engine, making            all of it as an Engine
beside_host               that with the check around it, and the engine of the host beside it
queued, events            the record of ops that end after their call has returned, and who reads when
split_alike               what the ranks of a parent group ask for when its communicator is to be split,
                          compared before any of them waits for another in ncclCommSplit, which has no limit
                          and compares nothing
"""
