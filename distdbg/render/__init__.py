"""Findings and sessions as text, JSON and pages. Standard library, and rich where a terminal is.

Forms

    short.py                    at most 12 lines for a log, a launcher's report, a raised error
    text.py                     what a terminal shows; the only one that imports rich
    plain.py schema.py          the JSON of `distdbg analyze --json`, and what its keys mean
    html.py                     one file with a timeline, graphs and tables: svg, page_data, page/

What they show, without a form

    where.py stacks.py          where each rank is; equal stacks once
    enclosing.py                what stands around a call in its source;  source_line.py: its text
    grid.py                     the op where it happened, as ranks by ops
    story.py printed.py         what a rank did last, and printed last
    waitgraph.py aggregate.py   who waits for whom; who was late, and who waited for it
    words.py                    ranks, sites, times and waits as a reader wants them

All that comes from a program is escaped here: files may come from anywhere.
"""
