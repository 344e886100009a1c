"""The ops of torch's groups, seen and checked where torch dispatches them.

install.py    kernels for torch's c10d ops, and the few patches for what passes by them
callers.py    which function of torch's an op comes from
lane.py       the short way of the ops that Python calls most
methods.py    the methods of torch's group that take it
reducing.py   the group that DDP's reducer is given, whose buckets take it
calls.py      the arguments of each op as a Call
engine.py     an engine that hands an op back to torch; the check around it
pending.py    torch's Work as a Pending
groups.py     which of our groups is beside which of torch's
nvtx.py       ops and spans as NVTX ranges, where a profiler wants them
backward.py   whether a backward pass waits in C++
sockets.py    what ends an op that waits in gloo
supported.py  whether this version of torch is one that the tap knows
"""
