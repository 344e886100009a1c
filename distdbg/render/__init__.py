"""Findings and sessions as text, JSON and pages. Standard library, and rich where a terminal is.

    words.py     ranks, sites, times and waits as a reader wants them
    short.py     at most 12 lines for a log
    plain.py     the JSON of `distdbg analyze --json`
    text.py      what a terminal shows
    html.py      one file with a timeline, graphs and tables
    aggregate.py where.py grid.py stacks.py story.py     what the last two show, without a form

All that comes from a program is escaped here: files may come from anywhere.
"""
