"""The collectives runtime: groups of ranks and their ops, with torch.distributed's semantics.

world                                     what one rank knows; the current world of a thread
init                                      init_process_group, destroy_process_group
creation, group_join, subgroups, queries  groups
collectives, p2p, objects, coalescing     the functions users call
arguments, calls                          their arguments checked, and made into Calls
group, group_methods                      ProcessGroup: gives Calls to its engine, in one place
work, future, watcher                     what async_op=True returns
agent_start                               starts the agent of this host
backends                                  what moves the bytes of a group: our CPU engine (cpu.py), and
                                          backends registered by others
buffers                                   from the user's array to the memory that native code works on
call                                      one op as every layer sees it
cuts                                      where the blocks of a Call lie in its arrays
control_page                              opens and closes the control page of this host for a rank
debuggable                                lets debuggers attach to a running rank, where the job was
                                          started with --debuggable
debugger_seam                             the seam to the debugger, which is above the runtime and loaded
                                          only where there is a reason to stop
device_arrays                             arrays in the memory of a CUDA device, as planning and checking
                                          see them; no library is imported
device_wait                               blocks the host until a GPU has done all that is queued
dtypes                                    the element types that the runtime moves and reduces, and how
                                          NumPy and torch call them
engine                                    the seam between the API and whatever moves bytes
exit_reason                               publishes why a rank leaves, before it does
integers                                  whole numbers among arguments
known_calls                               calls that look like one of before, which native code carries
                                          out alone (native/bindings/known_calls.hpp)
latent                                    starts and stops the search of a World for latent errors
                                          (check/latent.py)
marks                                     marks and spans
member_liveness                           whether the members of a group that is being made are still
                                          alive, as far as this host can see
memory_room                               how much memory this host, or the cgroup of this process, has,
                                          and how much of it is free
mesh                                      the ranks of a job as an array, with a group for each line along
                                          each of its dimensions
net                                       ways between hosts
options                                   the option objects of ProcessGroup's methods
parallel                                  data parallel training
plan                                      collectives as data, made by pure functions and carried out by
                                          the native interpreter
recorded_waits                            records calls that may wait outside of the engines
recording                                 the record of this rank
reduce_op                                 reduceOp as torch.distributed has it, and which ops are defined
                                          for which dtypes
rendezvous                                how ranks find each other
self_messages                             messages of a rank to itself
shared_arrays                             empty and zeros
stack_signal                              lets an observer dump this rank's stacks without its help
store                                     how the ranks of a run find each other
torch_arrays                              what the runtime needs of PyTorch CPU tensors, without ever
                                          importing torch
torch_backends                            what a backend of torch's own (ProcessGroupGloo and its kin)
                                          takes
torch_futures                             A Future as a torch.futures.Future, for whoever has imported
                                          torch
torch_profiler                            shows each op in PyTorch's profilers while one runs, named and
                                          measured as torch shows those of gloo
trace_context                             the span of the user's own traces that a thread is in, for its
                                          record
tuning                                    what this machine decides about how bytes move
uncaught                                  prints an uncaught exception of a rank as one block, in one
                                          write
waits                                     records which threads wait in Python for an op in flight
backends/           engines; plan/ the algorithms; store/ rendezvous/ how ranks find each other
"""
