"""Ways between hosts: which addresses this process has, and the hub that other hosts reach it through."""
