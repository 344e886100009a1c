"""The ways out of an agent's metrics and traces.

exporting  all of one agent; one that fails is dropped
source     what they know of an agent, as protocols
serving    /metrics and /sd over HTTP
sending    writes metrics to a text file and to a Pushgateway, every 15 seconds and at the end
otlp       findings, ends and metrics for OpenTelemetry, as the loop knows them
targets    where metrics are served, of all running jobs of this user here
"""
