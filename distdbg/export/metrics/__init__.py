"""Metrics for Prometheus: what there is, how many series it may be, how it is written.

families.py    the table of all metrics, from which the reference is made
facts.py       what they are made from; the agent fills it from records and from what it knows itself
bounds.py      what keeps labels few: the label of a group, the first so many of anything
totals.py      Accumulator: totals that only rise, though groups close and ranks start again
model.py       a collected set, as plain values
collect.py     facts to a collected set
text.py        written as Prometheus' text and as OpenMetrics
protobuf.py    written as protobuf, with native histograms
client.py      as prometheus_client's objects, for a program of somebody else
negotiate.py   which of them a scraper has asked for
textfile.py    into a folder of node_exporter
push.py        to a Pushgateway
"""
