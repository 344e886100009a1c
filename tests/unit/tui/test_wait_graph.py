"""Who waits for whom as boxes and arrows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdbg.record.rank_state import RankState
from distdbg.tui.targets import RanksTarget, RankTarget
from distdbg.tui.wait_graph import MAX_ALONE, MAX_NODES, WaitBoxes, draw_waits, fold_waits
from distdbg.view.snapshot import RankRow, WaitRow

NOW = 1000.0


def wait(rank: int, *on: int, op: str = "recv", core: bool = False) -> WaitRow:
    return WaitRow(rank=rank, on=on, op=op, site="a.py:3 (run)", can_go_on=not core, since=NOW - 5)


def drawn(graph: WaitBoxes, width: int = 100) -> list[str]:
    return [
        "".join(cell.text for cell in row)
        for one in draw_waits(graph, width, NOW)
        for row in (one.cells, *one.more)
    ]


def test_ranks_that_wait_alike_are_one_box_under_what_they_wait_for() -> None:
    rows = {3: RankRow(rank=3, state=RankState.ASLEEP, site="dataloader.py:210 (__next__)")}
    graph = fold_waits([wait(rank, 3, op="all_reduce #4") for rank in (0, 1, 2, 4)], rows)
    assert drawn(graph) == [
        "╔═ rank 3 ═══════════ waits for no rank ═╗",
        "║ asleep                                 ║",
        "║ dataloader.py:210 (__next__)           ║◀─╮",
        "╚════════════════════════════════════════╝  │",
        "   ┌─ ranks 0-2,4 ─────────────── 5.0 s ─┐  │",
        "   │ all_reduce #4                       ├──╯",
        "   │ a.py:3 (run)                        │",
        "   └─────────────────────────────────────┘",
    ]


def test_a_cycle_is_drawn_as_its_waiting_goes_and_marked() -> None:
    graph = fold_waits([wait(0, 2, core=True), wait(1, 0, core=True), wait(2, 1, core=True)], {})
    assert [node.ranks for node in graph.nodes] == [(0,), (2,), (1,)]
    text = "\n".join(drawn(graph))
    assert text.count("deadlock, 5.0 s") == 3
    assert text.count("◀") == 3
    assert all(line.is_fault for line in draw_waits(graph, 80, NOW))


def test_a_chain_is_one_layer_after_the_other_and_any_of_several_is_said() -> None:
    graph = fold_waits(
        [wait(1, 0), wait(2, 1), WaitRow(rank=3, on=(1, 2), is_any=True, op="recv from any")], {}
    )
    assert [(node.ranks, node.layer) for node in graph.nodes] == [
        ((0,), 0), ((1,), 1), ((2,), 2), ((3,), 2),
    ]  # fmt: skip
    assert any("recv from any, for any of ranks 1-2" in line for line in drawn(graph))
    assert graph.nodes[3].to == (1, 2)


def test_enter_opens_one_rank_or_several() -> None:
    graph = fold_waits([wait(1, 0, op="barrier"), wait(2, 0, op="barrier")], {})
    keys = [line.key for line in draw_waits(graph, 80, NOW)]
    assert keys == [RankTarget(0), RanksTarget((1, 2), "barrier")]


def test_ranks_that_wait_for_a_partner_each_are_one_box_where_the_partners_are_one() -> None:
    pairs = [wait(rank, rank - 10, op="all_gather #9") for rank in range(20, 30)]
    graph = fold_waits([*(wait(rank, 0, op="barrier") for rank in range(10, 20)), *pairs], {})
    assert [node.ranks for node in graph.nodes] == [
        (0,), tuple(range(10, 20)), tuple(range(20, 30)),
    ]  # fmt: skip
    assert graph.nodes[2].on == tuple(range(10, 20))


def test_of_many_waits_those_nearest_to_the_cause_are_kept_and_the_rest_is_counted() -> None:
    graph = fold_waits([wait(rank, rank + 1) for rank in range(4095)], {})
    assert [node.ranks[0] for node in graph.nodes] == list(range(4095, 4095 - MAX_NODES, -1))
    assert (graph.left_out, graph.left_out_ranks) == (4096 - MAX_NODES, 4096 - MAX_NODES)
    assert drawn(graph)[-1].startswith("... 4072 more kinds of waiting, of 4072 ranks")


def test_a_large_cycle_is_folded_where_its_ranks_wait_alike() -> None:
    ranks = range(MAX_ALONE + 4)
    graph = fold_waits([wait(rank, *ranks, op="all", core=True) for rank in ranks], {})
    assert [node.ranks for node in graph.nodes] == [tuple(ranks)]
    assert len(drawn(graph)) == 4


def test_arrows_that_have_no_room_are_counted() -> None:
    graph = fold_waits([wait(rank, *range(20, 32), op=f"op {rank}") for rank in range(2)],
                       {rank: RankRow(rank=rank, site=f"a.py:{rank} (f)") for rank in range(32)})  # fmt: skip
    assert drawn(graph)[-1] == "8 arrows are not drawn: there is no room; v lists all"


@pytest.mark.parametrize("width", [0, 20, 40, 80, 200])
@given(
    st.lists(
        st.builds(
            lambda rank, on, core: wait(rank, *on, core=core),
            st.integers(0, 40),
            st.lists(st.integers(0, 40), max_size=5),
            st.booleans(),
        ),
        max_size=40,
    )
)
def test_any_waits_can_be_drawn(width: int, waits: list[WaitRow]) -> None:
    graph = fold_waits(waits, {})
    ranks = [rank for node in graph.nodes for rank in node.ranks]
    assert len(ranks) == len(set(ranks))
    known = {one.rank for one in waits} | {rank for one in _first(waits) for rank in one.on}
    assert len(ranks) + graph.left_out_ranks == len(known)
    boxes = [line for line in draw_waits(graph, width, NOW) if line.more]
    assert all(len(line.more) == 3 for line in boxes)
    if width >= 80:
        assert all(len(row) <= width for row in drawn(graph, width))


def _first(waits: list[WaitRow]) -> list[WaitRow]:
    return list({one.rank: one for one in reversed(waits)}.values())
