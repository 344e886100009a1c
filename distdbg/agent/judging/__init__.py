"""The diagnosis inside the agent: when to run it, what to report, when to abort the job.

account         the ops in flight and progress of one host, as plain values to send
live_session    a `diagnose.session.Session` of the accounts of all hosts. Pure
watch, doubt    when to diagnose (at the root's agent), and whether a proof still holds
patience        from which age on a rank that reaches no op counts as stuck. Pure
news            what is reported of a verdict, and when; each thing once. Pure
proof           which verdicts may abort a job
judging.blamed  stacks and sightings of the ranks of the cause; verdict.json
"""
