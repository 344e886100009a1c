"""One file per kind of finding: `find(session, ...)` returns what is there of it, else nothing."""
