"""The dashboard, `distdbg top`: what a job does, drawn in a terminal. The only place that imports textual.

    snapshot        what is shown at one moment: plain values, times as points of unix time
    feed            where snapshots come from: a living job, its record, a recorded dashboard, a test
    app             the frame around the views: header, keys, command bar, filter, breadcrumbs
    view, table     what a view is;  rows of any number, of which only those in sight are drawn
    cells           how ages, sizes, states and ranks are written
    views/          one file per view

A feed is asked by the clock of the app, a few times a second; it never calls back. Nothing here imports the
agent: `agent/live_feed.py` is a feed, and `cli/top.py` puts both together.
"""
