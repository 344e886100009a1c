"""Groups over NCCL: `backend="nccl"`. The only place that imports CuPy, and only when it is asked for.

library.py nccl_functions.py    CuPy and NCCL of this process, and what CuPy does not bind
options.py                      what a program may choose
wire.py reductions.py           what NCCL has of dtypes and reduce ops, and how the rest travels
steps.py                        from a Call to calls of NCCL: plain data
side.py streams.py              what an op has on its device: memory, streams, events
alike.py arrivals.py            what ranks have, compared when a group is made; waits for what all of them say
communicators.py splitting.py   a communicator for each group
pending.py watchdog.py          an op in flight, and the thread that looks after all of them
failures.py                     what an error of NCCL says, and what to do about it
ending.py                       how a group is given up
calling.py                      queues one op
engine.py making.py             all of it as an Engine
beside_host.py                  that with the check around it, and the engine of the host beside it
queued.py events.py             the record of ops that end after their call has returned, and who reads when
"""
