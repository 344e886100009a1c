"""The functions that users call, and from their arguments to a Call.

collectives                      all_reduce and the other collectives
p2p                              send, recv, their asynchronous forms, and batches of them
objects                          Python objects instead of arrays
coalescing, blocks               several ops issued as one, and compared as one
subgroups                        new_group, split_group and their kin
queries                          ranks, sizes, backends; nothing here communicates
monitored_barrier                a barrier that names the missing ranks (members/store_barrier.py)
process_groups                   ProcessGroup and its kin as programs name them
assert_same                      whether values are equal on all ranks, and the first place where
                                 they differ
shared_arrays                    empty and zeros
marks                            a program's own words in its record
options                          the option objects of ProcessGroup's methods
arguments, integers              arguments checked, as far as one rank can see alone
calls                            from arguments to a Call
known_calls                      calls that look like one of before, which native code carries out
                                 alone (native/bindings/known_calls.hpp)
"""
