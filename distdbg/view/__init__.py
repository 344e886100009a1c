"""What is shown of a job, as plain values: the same for a job that runs and for one that is over. Pure.

snapshot     what is shown at one moment: plain values, times as points of unix time
feed         where snapshots come from: a running job, its record, a recorded dashboard, a test
groups       hosts as rows; process groups, of one report or of those of several hosts
waits        who waits for whom, a row for each wait
differences  what the ranks did not call alike, and who did not call at all
rank_facts   the facts of one rank, as its page lists them
short_words  an op, a frame of a stack and the end of a rank in a few words

Live (`client/feed`) reads answers of agents, replay (`tui/replay`) the columns of records; what both say of
the same thing is worded here.
"""
