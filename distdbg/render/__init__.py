"""Findings and sessions as text, JSON and pages. Standard library, and rich where a terminal is.

Forms

    short.py                    at most 12 lines for a log, a launcher's report, a raised error
    text.py                     what a terminal shows; the only one that imports rich
    verdict_json.py schema.py   the JSON of `distdbg analyze --json`, and what its keys mean
    html.py                     one file with a timeline, graphs and tables: svg, page_data, page/

What they show, without a form

    where.py stacks.py          where each rank is; equal stacks once
    enclosing.py                what stands around a call in its source;  source_line.py: its text
    grid.py                     the op where it happened, as ranks by ops
    story.py                    what a rank did last
    waitgraph.py aggregate.py   who waits for whom; who was late, and who waited for it
    words.py                    ranks, sites, times and waits as a reader wants them

All that comes from a program is escaped here: files may come from anywhere.

generators      generators of random numbers, who draws from them, and whether ranks seed them alike
hints           hints that only the source gives, by what they go by
loop_exits      what skips a call in its source, or ends the loop that it stands in
notes           what is worth saying of the source around the lines of a stack, by what was found
source_hint     hints that only the source gives
swallowed       what swallows an error before a call, so that the rank goes on behind that call
finding_stacks  the stacks that explain a finding, with their source
"""
