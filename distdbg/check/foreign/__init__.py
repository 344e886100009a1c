"""Checks for other backends, by a control group of our own beside the backend.

beside.py traits.py             when the check is used, and what a backend declares
checked_engine.py checked_pending.py lane.py hands.py block.py   ops after their agreements, watched
control.py agreement.py table.py array_facts.py   the ranks agree, without reading arrays
messages.py                     point to point, by a header beside each message
"""
