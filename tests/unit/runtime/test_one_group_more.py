"""A group that the others do not make any more: of ranks of one host, which see in shared memory who left.

Over TCP who left is seen in an op of the group alone.
"""

from __future__ import annotations

import pytest

import distdbg as dist
from distdbg.errors import RankLeft


def test_who_makes_one_group_more_than_others_that_have_left_is_told_at_once() -> None:
    def one_more() -> str | None:
        dist.barrier()
        if dist.get_rank() != 1:
            dist.destroy_process_group()
            return None
        with pytest.raises(RankLeft) as caught:
            dist.new_group([1, 2])
        assert (caught.value.peer, caught.value.kind) == (2, "new_group")
        return str(caught.value)

    text = dist.run_threads(one_more, 3)[1]
    assert text is not None
    assert "; this rank needed it in new_group for group 1-2\n" in text
    assert "\n  rank 1 called new_group for group 1-2 at test_one_group_more.py:" in text
