"""Finders, one file per kind of finding: `find(session, ...)` returns the findings of that kind."""
