"""Timelines: Perfetto's TrackEvent protobuf and Chrome's JSON.

perfetto          the whole of a .perfetto-trace
chrome            the whole of a .trace.json
arrivals          who came first and last to each collective, and how the two ends of messages are counted
counts            counters over the time of a rank
lanes             slices of one track may not overlap, so what overlaps gets tracks beside each other
moments           what happened to a rank beside its ops
packets           packets of a Perfetto trace
protobuf_columns  many protobuf messages of one layout at once, by NumPy
shared_arguments  the arguments of an op that many ops have in common
slices            what a rank did as slices on tracks, for any format of traces; numbers of processes
"""
