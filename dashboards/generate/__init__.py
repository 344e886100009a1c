"""Generates the Grafana dashboards: one file per dashboard, on top of `panels` and `board`.

    queries    the parts that expressions have in common; selectors for run, rank and group
    look       colours, thresholds and value mappings
    panels     one function per type of panel
    board      a dashboard around rows of panels: variables, links, annotations, places on the grid

The JSON in `dashboards/grafana/dashboards/` is generated; do not edit it.
"""
