"""Draws dashboards as pictures, from a Prometheus: near enough to Grafana for a person to judge them.

fill.py      what Grafana makes of a query before it asks: variables, intervals
ask.py       the queries of a panel, asked; series with their names, tables with their columns
units.py     numbers as people read them
look.py      colours, thresholds, words in the place of numbers
axes.py      scales and ticks
shapes.py    the elements of a picture
panels.py    one function per type of panel
table.py     the one for tables
page.py      a whole dashboard

Grafana's own renderer is a Chromium beside a Grafana that runs; a plotting library would take the place of
axes.py and shapes.py, 243 of 1,312 lines: the rest is what Grafana does with queries, variables, thresholds
and tables. So this needs the standard library only. `python -m dashboards.draw --help` draws one.
"""
