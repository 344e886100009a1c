"""The metrics of one agent: read in its loop, put together beside it; let out by `export/outlets`.

metering     facts from the loop, kept for a moment, collected in another thread
job          the sums over all hosts, at the root: other hosts are asked in a thread
asked_hosts  which of them, and when; pure
"""
