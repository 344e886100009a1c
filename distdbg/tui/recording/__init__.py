"""The file of a recorded dashboard: snapshots with CPU, memory and states, which no record of a run has.

    written         values of a snapshot as JSON, and back; what has changed between two of them. Pure
    writer          RecordingFeed: any feed, and a thread that keeps what it shows
    reader          a file as entries, as far as it can be read
    feed            RecordedFeed: a file as a feed, to be scrubbed through

A file is lines of JSON, in gzip where its name ends in .gz:

    {"distdbg": "dashboard", "version": 1, "run": "...", "title": "...", "at": 1790000000.0}
    {"at": 1790000000.2, "full": {...}}                 a whole snapshot; now and then another one
    {"at": 1790000001.2, "set": {"ranks": {"3": {"state": "waiting", ...}}, "lines": [...]}}
    {"at": 1790000001.2, "log": [[time, ranks, stream, text], ...]}
    {"at": 1790000001.2, "bars": {"3": [[number, kind, name, group, seq, issued, started, ended, failed]]}}
    {"at": 1790000002.0, "end": "closed"}

Keys that a reader does not know are passed over; lines that it cannot read as well, up to the next `full`.
"""
