"""Links between hosts, by TCP or UCX: addresses of this process, and the hub that others reach it through.

The links themselves are native/core/tcp_dial.cpp, tcp_hub.cpp and ucx_engine.cpp.

address     which address other hosts reach this process at
between     a rank's ways to the ranks of other hosts, in one group; none where all are on one host
hosts       which ranks of a group share memory
hub         the hub of this process
run_links   what messages between hosts take, measured once for each pair of hosts in a run
ucx         whether ranks of several hosts exchange data by UCX, and opening it
"""
