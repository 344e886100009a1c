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

A backend of somebody else is checked beside, by a control group of our own:
beside.py traits.py             when that is done, and what a backend may say about itself
checked_engine.py checked_pending.py lane.py hands.py   ops after their agreements, watched
control.py agreement.py table.py array_facts.py   the ranks agree, on arrays they cannot look into
messages.py                     point to point, by a header beside each message
"""
