"""Connections that become pipes: to the debugger of a rank, and to the agent of another host.

`debug` joins a client with the socket of a rank of this host. `via` hands it to the tree, where the agent
of the other host serves it. Both answer first; what follows the answer is the other end's.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from distdbg.agent.proxy import MAX_PAIRS, ProxiedConnections
from distdbg.client import protocol
from distdbg.client.protocol import Request
from distdbg.control import sockets
from distdbg.errors import DistNetworkError, UsageError, format_ranks
from distdbg.follow.processes import stopped_process
from distdbg.hosts.pipe_ends import PipeAnswer, PipedClient, PipeMail
from distdbg.hosts.pipes import NoWay, PipeKey, PipeTarget

if TYPE_CHECKING:
    from distdbg.agent.api import ApiClient
    from distdbg.agent.context import AgentContext

#: How long the agent of another host may take to answer.
ANSWER_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class _Asked:
    client: ApiClient
    id: int | str
    target: PipeTarget
    until_ns: int


class ClientPipes:
    """The methods `debug` and `via` of one agent."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        self._proxied = ProxiedConnections(agent.selector)
        self._asked: dict[PipeKey, _Asked] = {}

    def debug(self, request: Request, client: ApiClient) -> None:
        """Join the client with the debugger of a rank; UsageError when there is none."""
        rank = request.arguments.get("rank")
        if type(rank) is not int:
            raise UsageError("debug: 'rank' is a number")
        roster = self._agent.roster
        roster.check_rank(rank)
        if rank not in roster.watched_ranks:
            raise UsageError(
                f"rank {rank} is not on host {self._agent.host}",
                hint="`via` with the same rank leads to the agent of its host",
            )
        if self._proxied.are_full:
            raise UsageError(f"{MAX_PAIRS} debuggers are already open through this agent")
        sock = _connect(
            rank, roster.folder / sockets.debugger_socket(rank), roster.watched_ranks[rank].pid
        )
        client.send(protocol.answer(request.id, {}))
        given = self._agent.server.release(client)
        if given is None:  # it went while it was answered
            sock.close()
            return
        self._proxied.join(given.socket, sock, given.unwritten, given.unread)

    def via(self, request: Request, client: ApiClient) -> None:
        """Lead the client to another agent; UsageError when there is no way."""
        if any(asked.client is client for asked in self._asked.values()):
            raise UsageError("via: this connection is already being forwarded")
        try:
            target = PipeTarget.from_json(request.arguments)
        except ValueError as error:
            raise UsageError(f"via: {error}") from None
        if target.rank is not None:
            self._agent.roster.check_rank(target.rank)
        try:
            key = None if self._is_here(target) else self._agent.steering.open_pipe(target)
        except NoWay as error:
            here = format_ranks(self._agent.roster.watched_ranks)
            hint = f"the ranks of this host are {here}" if here else None
            raise UsageError(str(error), hint=hint) from None
        if key is None:
            client.send(protocol.answer(request.id, {}))
            client.send(protocol.hello(self._agent.run_name, self._agent.host, os.getpid()))
            return
        until_ns = time.monotonic_ns() + int(ANSWER_S * 1e9)
        self._asked[key] = _Asked(client, request.id, target, until_ns)

    def on_mail(self, mail: PipeMail) -> None:
        """What the tree says of pipes."""
        match mail:
            case PipedClient(sock):
                self._agent.server.adopt(sock)
            case PipeAnswer(key, why):
                asked = self._asked.pop(key, None)
                if asked is None:
                    if not why:
                        self._agent.steering.end_pipe(key)
                elif why:
                    error = DistNetworkError(why)
                    asked.client.send(protocol.refuse(asked.id, error))
                else:
                    self._hand_over(key, asked)

    def gone(self, client: ApiClient) -> None:
        for key, asked in list(self._asked.items()):
            if asked.client is client:
                del self._asked[key]
                self._agent.steering.end_pipe(key)

    def tick(self, now_ns: int) -> None:
        """Refuse what takes too long."""
        self._proxied.tick(now_ns)
        for key, asked in list(self._asked.items()):
            if now_ns > asked.until_ns:
                del self._asked[key]
                self._agent.steering.end_pipe(key)
                error = DistNetworkError(f"the agent of {asked.target} did not answer in time")
                asked.client.send(protocol.refuse(asked.id, error))

    def begin_anew(self) -> None:
        """The tree is another one."""
        for asked in list(self._asked.values()):
            error = DistNetworkError("the ranks were restarted in the meantime")
            asked.client.send(protocol.refuse(asked.id, error))
        self._asked.clear()

    def close(self) -> None:
        self._proxied.close()

    def _hand_over(self, key: PipeKey, asked: _Asked) -> None:
        asked.client.send(protocol.answer(asked.id, {}))
        given = self._agent.server.release(asked.client)
        if given is None:
            self._agent.steering.end_pipe(key)
        else:
            self._agent.steering.join_pipe(key, given.socket, given.unwritten, given.unread)

    def _is_here(self, target: PipeTarget) -> bool:
        if target.rank is not None and target.rank in self._agent.roster.watched_ranks:
            return True
        return target.rank is None and target.host == self._agent.host


def _connect(rank: int, path: Path, pid: int) -> socket.socket:
    try:
        sock = sockets.connect(path, 0.0)  # on a Unix socket that is at once, or not at all
    except OSError as error:
        if error.errno == errno.EAGAIN:
            raise UsageError(
                f"rank {rank} does not answer: too many debuggers are waiting for it"
            ) from None
        if error.errno not in (errno.ENOENT, errno.ECONNREFUSED):
            raise UsageError(f"rank {rank} cannot be reached: {error.strerror}") from None
        if why := stopped_process(rank, pid):
            raise UsageError(why) from None
        raise UsageError(
            f"rank {rank} is not in a debugger and cannot be stopped from outside",
            hint="a rank can be debugged while it is at a breakpoint (dist.breakpoint(), distdbg break), "
            "or from init_process_group on in a job that was started with distdbg run --debuggable",
        ) from None
    if not sockets.is_same_user(sock):
        sock.close()
        raise UsageError(f"the socket at {path} is served by another user")
    return sock
