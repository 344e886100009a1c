"""A run as one table, a row for each op, mark, span and finding of each rank.

columns.py   the table of columns: names, units, words about them, and where the values come from
rank_columns.py      the rows of a rank, some at a time, column by column
csv.py       text
parquet.py   Apache Parquet, by pyarrow
"""
