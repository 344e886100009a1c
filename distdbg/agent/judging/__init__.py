"""The diagnosis inside the agent: when to run it, what to report, when to abort the job.

account              the ops in flight and progress of one host, as plain values to send
live_session         a `diagnose.session.Session` of the accounts of all hosts. Pure
decide               when the job is diagnosed, what is said of it, when it is aborted: (state, event) ->
                     (state, instructions). Pure
diagnosis_state, diagnosis_events, instructions    what those are
watch                makes the events of what is there, and carries the instructions out
stuck_thresholds     from which age on a rank that reaches no op counts as stuck. Pure
reports              what is reported of a verdict, and when; each thing once. Pure
verdict_files        stacks and sightings of the ranks of the cause; verdict.json
error_times          times of the errors of ranks, and of their last op that went well
judge, judged_verdict    diagnoses the accounts of the hosts
diagnosis_triggers   the ranks that are a reason to diagnose the job; a change triggers a new diagnosis
"""
