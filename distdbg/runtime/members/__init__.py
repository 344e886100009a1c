"""Finds which member of a group is alive, and what a missing one does.

member_liveness  whether the members of a group that is being made are alive, as far as this host
                 can see
lost_members     which member has died or left, for waits outside of the data plane
absent           where missing ranks are, for the text of a timeout
out_of_batches   adds to an error that a rank ran out of batches, where the records of this host's
                 ranks prove it
store_barrier    the barrier over a group's store that names the missing ranks
barrier_tree     the tree in which it gathers them
"""
