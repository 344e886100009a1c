"""The dashboard, `distdbg top`: a running or recorded job in a terminal. The only place that imports textual.

The app

    app            which page is looked at, keys, filter, what changes the job
    frame          the lines around a page, and failures;  head: the text of these lines
    line           what is typed behind : and /, and y or n;  commands: the table of what `:` takes
    keys, help     names of keys;  all of them on a page
    pace           at most ten redraws a second
    terminal       whether a terminal can show it;  leaving: how a signal leaves it
    trouble        the private log of failures;  asking: slow requests, in a thread
    attach         a debugger on a rank, in the terminal of the dashboard

Pages

    view           what a view is;  views/: one file per view;  details/: what Enter opens
    targets        what the cursor can select and Enter opens
    cursor_view    what a table and a sheet share
    table          rows of any number, of which only those in sight are drawn
    sheet          lines of text under a cursor, for what is no table;  wrapped: lines longer than the screen
    cells          how ages, sizes, states and ranks are written
    lanes          bars of a timeline as letters;  time_axis, time_lanes: what is around them
    wait_graph     who waits for whom, drawn
    verdict        reads the verdict of a snapshot;  rank_roles: its causes and its victims

Other feeds, other screens

    replay_feed    a run that is over, at any moment of its time, by replay/;  scrubber: the line to move it
    replayed       what a feed of the past can do beside `Feed`
    recording/     what a dashboard saw, in a file: written by one feed, read by another
    once           one frame without a terminal, as text or as SVG
    web            `distdbg top --web`;  web_server: the server behind it;  web_driver: the driver of a
                   dashboard whose terminal is a browser;  access: who may come in

A feed is asked by the clock of the app, a few times a second; it never calls back. What is shown is
in `view`: `view/snapshot.py` are the values, `view/feed.py` is where they come from. Nothing here imports the
agent: `client/live_feed.py` is a feed, and `cli/top.py` puts both together.
"""
