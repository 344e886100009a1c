"""The diagnosis inside the agent: looks when nothing of interest has moved, and says and does what follows.

account         where the ranks of one host stand, as plain values that travel
live_session    a `diagnose.session.Session` of the accounts of all hosts. Pure
watch, doubt    when to look, who judges (the root's agent), and whether a proof still holds
patience        from when on a rank that gets to no op counts as stuck. Pure
news            what is said of a verdict, and when; each thing once. Pure
proof           which verdicts may end a job
blamed          stacks and sightings of the ranks that are blamed; verdict.json
"""
