"""The benchmark over a link of limited rate: it ends, and says how far from the bound each library is."""

from __future__ import annotations

import re

import pytest

from benchmarks import limited


@pytest.mark.slow
@pytest.mark.ranks
@pytest.mark.usefixtures("can_make_hosts")
@pytest.mark.parametrize(("link", "congestion"), [("kernel", None), ("thread", "reno")])
def test_a_limited_link_is_measured_beside_its_bound(
    capsys: pytest.CaptureFixture[str], link: str, congestion: str | None
) -> None:
    if link == "kernel" and (reason := limited.why_no_kernel()):
        pytest.skip(f"only root may join two hosts by veth: {reason}")
    sizes = ["--sizes", "256KiB", "--rounds", "2", "--mbit", "400", "--libraries", "distdbg"]
    if congestion is not None:
        sizes += ["--congestion", congestion]
    assert limited.main([*sizes, "--link", link]) == 0
    [head, row] = capsys.readouterr().out.splitlines()
    first = f"2 hosts x 2 ranks, 400 Mb/s each way by a {link}'s link, congestion control "
    assert head.startswith(f"{first}{congestion or 'of the system'}, load "), head
    bound = 4.7 if link == "kernel" else 5.2  # that one lets a tenth through at once
    number = r"([\d.]+)"
    found = re.fullmatch(
        rf"all_reduce  256 KiB  bound +{bound} ms  distdbg +{number} ms \({number} x, others {number}\)",
        row,
    )
    assert found is not None, row
    assert float(found[1]) > bound  # nobody is faster than the link
