"""How wide columns are, what is left out, and who gives way to whom."""

from distdbg.tui.table import TableColumn, widths

COLUMNS = (
    TableColumn(title="rank", width=4),
    TableColumn(title="in", width=22, grows=True),
    TableColumn(title="at", width=14, grows=True),
    TableColumn(title="cpu", width=5, from_width=60),
    TableColumn(title="memory", width=9, from_width=76),
)


def test_a_column_without_anything_in_it_is_left_out() -> None:
    assert dict(widths(COLUMNS, 98, hidden={3})).keys() == {0, 1, 2, 4}
    assert sum(wide for _, wide in widths(COLUMNS, 98, hidden={3})) == 98 - 3


def test_what_is_needed_is_given_first_by_what_grows_and_then_by_what_is_optional() -> None:
    assert dict(widths(COLUMNS, 78, needs={2: 38}))[2] == 38
    narrow = dict(widths(COLUMNS, 60, needs={2: 44}))
    assert narrow == {0: 4, 1: 10, 2: 44}


def test_more_than_there_is_cannot_be_given() -> None:
    assert dict(widths(COLUMNS, 40, needs={2: 200})).keys() == {0, 1, 2}


def test_a_column_of_fixed_width_gets_what_it_needs() -> None:
    assert dict(widths(COLUMNS, 78, needs={0: 11}))[0] == 11
