"""A tab of `distdbg top --web` whose dashboard ends before anybody has read from it."""

from __future__ import annotations

import asyncio
import sys

from distdbg.tui.web_server import Tab


def test_the_last_words_of_a_dashboard_that_ends_at_once_arrive() -> None:
    async def main() -> list[bytes]:
        said: list[bytes] = []

        async def say(data: bytes | str) -> None:
            assert isinstance(data, bytes)
            said.append(data)

        async def close() -> None:
            said.append(b"closed")

        command = [sys.executable, "-c", "import sys; sys.exit('there is no such job')"]
        tab = Tab(command, write_bytes=say, write_str=say, close=close)  # type: ignore[arg-type]
        process = await tab._open_app_process()
        assert process.stdout is not None
        while not process.stdout.at_eof():  # noqa: ASYNC110 - nobody is told of the end of a pipe
            await asyncio.sleep(0.01)
        await tab.run()
        await process.wait()
        return said

    words, end = asyncio.run(asyncio.wait_for(main(), 60))
    assert b"there is no such job" in words
    assert end == b"closed"
