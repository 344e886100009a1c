"""Metrics for Prometheus: what there is, how many series it may be, how it is written.

families.py    the table of all metrics, from which the reference is made
"""
