"""The collectives runtime: groups of ranks and their ops, with torch.distributed's semantics.

world.py            what one rank knows; the current world of a thread
init.py             init_process_group, destroy_process_group
creation.py meeting.py subgroups.py queries.py        groups
collectives.py p2p.py objects.py coalescing.py   the functions users call
arguments.py calls.py           their arguments checked, and made into Calls
group.py group_methods.py   ProcessGroup: gives Calls to its engine, in one place
work.py future.py watcher.py    what async_op=True returns
backends/           engines; plan/ the algorithms; store/ rendezvous/ how ranks find each other
"""
