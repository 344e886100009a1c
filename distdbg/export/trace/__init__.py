"""Timelines: Perfetto's TrackEvent protobuf and Chrome's JSON.

perfetto.py   the whole of a .perfetto-trace
chrome.py     the whole of a .trace.json
"""
