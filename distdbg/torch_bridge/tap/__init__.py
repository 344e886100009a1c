"""The ops of torch's groups, seen and checked where torch dispatches them.

install       kernels for torch's c10d ops, and the few patches for what passes by them
torch_functions  those of torch that install.py replaces, as they were
callers       which function of torch's an op comes from
lane          the short way of the ops that Python calls most
methods       the methods of torch's group that take it
reducing      the group that DDP's reducer is given, whose buckets take it
calls         the arguments of each op as a Call
engine        an engine that hands an op back to torch; the check around it
foreseen      whether an op of an FSDP unit is the one that is expected next
pending       torch's Work as a Pending
in_flight     an op that torch has, until its end is known
groups        which of our groups is beside which of torch's
queued        when a GPU began and ended an op that it has in a queue, by events around it
no_member     calls on a group that the rank is not in, which torch does not carry out
nvtx          ops and spans as NVTX ranges, where a profiler wants them
sockets       what ends an op that waits in gloo
supported     whether this version of torch is one that the tap knows
lane_message  the short way of a send or recv
waits_inside  whether a thread waits in C++, where Python cannot see it
"""
