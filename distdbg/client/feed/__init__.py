"""The parts of a dashboard's live feed: from the API's answers to the snapshot that is shown.

    connections       where a job is reached: its socket, a port, its records alone
    from_records      answers like an agent where there is none
    links             the connections that are kept, one per host, made anew when they break
    asking            what a live feed asks, and when: pure
    feed_state        what it knows and shows, and how that changes by what comes of asking: pure
    dashboard_rows    answers to rows: pure
    bars              the ops of the timeline, as far as they are kept: pure
    details           one op, one rank, stacks: pure
    final             how the ranks of a job that is over ended, and why

`client/live_feed.py` asks, twice to four times a second, and puts it together.
"""
