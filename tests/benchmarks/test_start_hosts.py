"""The benchmark of the start of many hosts: it ends, and says what it took."""

from __future__ import annotations

import re

import pytest

from benchmarks import start_hosts


@pytest.mark.slow
def test_the_start_of_a_few_hosts_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert start_hosts.main(["--hosts", "6", "--processes", "2"]) == 0
    row = capsys.readouterr().out.splitlines()[-1].split()
    assert row[0] == "6"
    assert re.fullmatch(r"\d+\.\d\d", row[1]), row
    assert row[-2] == "5"  # the links of the root
