"""What ranks print: into files, onto the console, or both; never mixed within a line.

    outputs     all of it for one launcher, with its thread
    choices     which stream of which rank goes where, and what its lines begin with. Pure
    folders     the log folders on disk;  losses: files that could not be written
    sinks       where lines go: the console, a file of selected lines
    tail        a rank's log file, from there into sinks, and the pipe before it
    lines       bytes of one stream to whole lines. Pure
    pipe_tail   from a pipe into one sink: a stderr that is kept in no file
    blocks      its bytes to whole lines and tracebacks. Pure
    alike       equal warnings and last lines of several ranks to one. Pure

    kept        finds the files of a run;  timed: their lines, with times
    merged      lines of many ranks to one sequence, equal ones folded. Pure

A stream that is teed is written by its rank to a file, and read there. So a console that nobody reads
never makes a rank wait, and what a rank printed before it died is there however it died.
"""
