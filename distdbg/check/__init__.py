"""What ranks must agree on, how a difference is found, and how it is told.

facts.py            what of a call must be equal on all ranks, and its fingerprint
blocks.py           coalesced blocks, compared as a whole
sites.py show.py    call sites and facts as messages show them
explain.py          the ranks' own descriptions of their calls, made into one error
levels.py           OFF, INFO, DETAIL, for all groups of a rank
log_levels.py logs.py tracing.py    how loud the log is, whose line it is, each op as a line
monitored_barrier.py tree.py        who does not come, told to all through the store
absent.py           where the missing ranks are
options.py          what a group checks beside the calls: non-finite inputs, checksums, buffers, order
arrays.py suspicion.py    what the options find, in words
same.py             assert_same
membership.py       who makes which group, in which order
foreign/            all this for a backend that is not ours
"""
