"""Metrics for Prometheus: what there is, how many series it may be, how it is written.

families   the table of all metrics, from which the reference is made
samples    what they are made from; the agent fills it from records and from what it knows itself
bounds     what keeps labels few: the label of a group, the first so many of anything
totals     Accumulator: totals that only rise, though groups close and ranks start again
rank_facts one rank as facts, from its record and its process
finding_counts  findings of the diagnosis, counted by kind
model      a collected set, as plain values
collect    facts to a collected set
text       written as Prometheus' text and as OpenMetrics
protobuf   written as protobuf, with native histograms
client     as prometheus_client's objects, for a program of somebody else
negotiate  which of them a scraper has asked for
textfile   into a folder of node_exporter
push       to a Pushgateway
buckets    the buckets of records as Prometheus has them
"""
