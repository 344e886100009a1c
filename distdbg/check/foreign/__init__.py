"""A backend of somebody else is checked beside it, by a control group of our own.

beside.py traits.py             when that is done, and what a backend may say about itself
checked_engine.py checked_pending.py lane.py hands.py   ops after their agreements, watched
control.py agreement.py table.py array_facts.py   the ranks agree, on arrays they cannot look into
messages.py                     point to point, by a header beside each message
"""
