"""The dashboard, `distdbg top`: a running or recorded job in a terminal. The only place that imports textual.

    app             which page is looked at, keys, filter, what changes the job
    frame           the lines around a page, and failures;  head: the text of these lines
    line, question  what is typed behind : and /;  y or n;  commands: the table of what `:` takes
    pace            at most ten redraws a second
    keys, help      names of keys;  all of them on a page
    trouble         the private log of failures;  asking: slow requests, in a thread
    view, table     what a view is;  rows of any number, of which only those in sight are drawn
    cells           how ages, sizes, states and ranks are written
    views/          one file per view
    lanes           bars of a timeline as letters;  time_axis, time_lanes: what is around them
    replay_feed     a run that is over, at any moment of its time, by replay/;  scrubber: the line to move it
    recording/      what a dashboard saw, in a file: written by one feed, read by another
    once            one frame without a terminal

A feed is asked by the clock of the app, a few times a second; it never calls back. What is shown is
in `view`: `view/snapshot.py` are the values, `view/feed.py` is where they come from. Nothing here imports the
agent: `client/live_feed.py` is a feed, and `cli/top.py` puts both together.

attach      A debugger on a rank, in the terminal of the dashboard, which steps aside until the debugger
            is left
awaited     which ranks have not called the op that others wait in, from their rows alone
details     what Enter opens
gate        who may come in to a dashboard that is served to a browser
headline    the headline over every view
leaving     signals that end a dashboard leave the terminal as it was
page_keys   which keys there are now
parts       which ranks are the cause, and which its victims
picture     A screenshot of the dashboard as SVG
replayed    what a feed of the past can do beside `Feed`
sheet       lines of text under a cursor, for what is no table: a verdict, a stack, a drawn graph
sorting     sorts the table that is looked at
targets     what the cursor can select and Enter opens
tones       the style of a tone or another part of a widget, from its CSS, for what draws its own lines
verdict     reads the verdict of a snapshot
wait_graph  who waits for whom, drawn
web         `distdbg top --web`
web_driver  the driver of a dashboard whose terminal is a browser
web_server  the server behind `distdbg top --web`
wrapped     how a line that is longer than the screen is wide becomes several rows
"""
