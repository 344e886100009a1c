"""What goes down: one small page per run and host that every wait of every rank looks at.

    layout      the bytes, as native/core/control.hpp has them
    words       what an abort says
    holds       who holds the clock
    state       the page as bytes, and what it says
    page        making, reading and writing the page
    clock       what a rank's waits look at
    break_fields, breakpoints   the rules by which ranks stop: their words; as text and in the page
    sockets     Unix sockets at paths of any length, for whoever steers

The page is written by observers (the agent, the commands) and read by ranks. A rank writes one thing: that
it sits in a debugger, so the clock has to stand.
"""
