"""What is shown of a job, as plain values: the same for a job that runs and for one that is over. Pure.

snapshot  what is shown at one moment: plain values, times as points of unix time
feed      where snapshots come from: a running job, its record, a recorded dashboard, a test

op_names     what an op is called in a bar or a list
endings      how a rank ended, as its row says it
differences  what the ranks did not call alike, and who did not call at all
waits        who waits for whom, a row for each wait
groups       process groups as rows, of one report or of those of several hosts
hosts        the hosts of a job as rows
rank_facts   the facts of one rank, as its page lists them
frames       a frame of a stack in one line

Live (`client/feed`) reads answers of agents, replay (`tui/replay`) the columns of records; what both say of
the same thing is worded here.
"""
