"""What is shown of a job, as plain values: the same for a job that runs and for one that is over. Pure.

snapshot  what is shown at one moment: plain values, times as points of unix time
feed      where snapshots come from: a running job, its record, a recorded dashboard, a test
"""
