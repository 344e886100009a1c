"""Makes the dashboards of Grafana: one file per dashboard, on top of `panels` and `board`.

    queries    the parts that expressions have in common; which run, rank and group is asked for
    look       colours, thresholds and the words for numbers that stand for something
    panels     one function per type of panel
    board      a dashboard around rows of panels: variables, links, annotations, places on the grid

The JSON in `dashboards/grafana/dashboards/` is written from here and never edited by hand.
"""
