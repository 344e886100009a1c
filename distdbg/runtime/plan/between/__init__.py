"""Plans for groups over several hosts: messages between hosts, shared memory inside.

    lane_position       one rank's place: its host, its lane, whom it exchanges messages with
    host            what happens inside of a host: folding, handing out, collecting
    ring            one after the other around a ring
    halving         by halves and doubles, for any number of hosts
    tree_shapes     who is whose parent in binomial and double binary trees
    trees           reducing and broadcasting along them, in pieces
    all_reduce ...  the plans of each kind, made from these
    estimate        how long each would take, in closed form
    choose          which one it is

All have a gate that compares and hands on no bytes; nothing is received before it. What a SEND reads is not
written again by the plan, so partial results live in scratch memory.

all_gather      plans of all_gather between hosts
all_to_all      plans of all_to_all between hosts
broadcast       plans of broadcast between hosts
gather          plans of gather and scatter between hosts
mirror          plans of one host for groups over several
reduce          plans of reduce between hosts
reduce_scatter  plans of reduce_scatter between hosts
"""
