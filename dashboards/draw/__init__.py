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

Needs the standard library only. `python -m dashboards.draw --help` draws one.
"""
