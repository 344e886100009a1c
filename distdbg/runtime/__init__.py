"""The collectives runtime: groups of ranks and their ops, with torch.distributed's semantics.

What an op is, is in `distdbg/ops`; what ranks compare of it, in `distdbg/check`.

api            the functions that users call, and from their arguments to a Call
arrays         from the user's arrays to the memory that native code works on
handles        what async_op=True returns, and who waits for it
groups         ProcessGroup, and how one is made
members        which member of a group is alive, and what a missing one does
process        the life of a rank: its World, from init_process_group to its last words
recorder       the record of a rank, and its ops in torch's profilers
latent_errors  the search for mistakes that have done no harm yet
backends       engines, which move the bytes of a group: ours and those of others
plan           collectives as data, made by pure functions and carried out by the native interpreter
tuning         what this machine decides about how bytes move
store          the key-value stores by which the ranks of a job meet
rendezvous     how ranks find each other
net            ways between hosts
mesh           the ranks of a job as an array, with a group for each line along each of its
               dimensions
parallel       data parallel training
"""
