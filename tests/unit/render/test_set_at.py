"""Where a variable that differs between ranks is set, by its source alone."""

from __future__ import annotations

import pytest

from distdbg.render.enclosing import parse
from distdbg.render.finding_stacks import set_at

PROGRAM = """\
import json
class Table:
    def __init__(self, size):
        self.size = size
        self.turn = 0
    def apply(self, updates):
        if not updates:
            return
        self.turn += 1
    def move(self, first):
        if first:
            self.place = 1
        else:
            self.place = 2
        self.place += 1
    def publish(self):
        dist.broadcast(self.values, src=self.turn % self.size)
def main():
    config = json.load(open("a"))
    for step in range(9):
        train(config["accumulate"])
def several(config):
    train(config["accumulate"])
"""


@pytest.mark.parametrize(
    ("line", "variable", "said"),
    [
        (
            17,
            "self.turn = 6 on rank 3; self.turn = 7 on ranks 0-2,4",
            [
                "self.turn is set by `self.turn += 1` (line 9)",
                "a `return` under `if not updates` (line 7) skips that",
            ],
        ),
        (17, "self.size", ["self.size is set by `self.size = size` (line 4)"]),
        (17, "self.place", []),  # by three lines
        (17, "self.nowhere", []),
        (
            21,
            'config["accumulate"] = 3',
            ['config is set by `config = json.load(open("a"))` (line 19)'],
        ),
        (23, 'config["accumulate"] = 3', []),  # its caller knows
        (21, "len(x)", []),
        (99, "self.turn", []),
    ],
)
def test_the_line_that_sets_it_and_what_skips_that(
    line: int, variable: str, said: list[str]
) -> None:
    source = parse(PROGRAM.splitlines())
    assert source is not None
    assert set_at(source, line, variable) == said
