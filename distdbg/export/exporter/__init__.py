"""`distdbg exporter`: metrics of runs from their records alone, running or finished.

pages     the server and what it is asked
runs      which runs are served
one_run   metrics of one run from its records
"""
