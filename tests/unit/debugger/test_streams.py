from __future__ import annotations

import io
import sys
import threading

from distdbg.debugger.streams import printing_to


def test_each_thread_prints_to_its_own_and_the_rest_as_before() -> None:
    before = sys.stdin, sys.stdout, sys.stderr
    outs = [io.StringIO() for _ in range(3)]
    barrier = threading.Barrier(3)

    def work(number: int) -> None:
        with printing_to(outs[number]):
            barrier.wait(120)
            print("thread", number)
            barrier.wait(120)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    barrier.wait(120)
    barrier.wait(120)
    for thread in threads:
        thread.join(30)
    assert [out.getvalue() for out in outs] == ["thread 0\n", "thread 1\n", ""]
    assert (sys.stdin, sys.stdout, sys.stderr) == before


def test_a_stream_that_the_block_puts_in_place_stays() -> None:
    before = sys.stdout
    own = io.StringIO()
    try:
        with printing_to(io.StringIO()):
            sys.stdout = own
        assert sys.stdout is own
    finally:
        sys.stdout = before
