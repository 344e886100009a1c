"""One connection: plain bytes on the inside, TLS on the network. Nothing here blocks.

What cannot be passed on stays here, at most a buffer in each direction, and no more is read meanwhile. The
end of one side is passed on once all before it is. TLS's own farewell is not used: whoever is inside has
words of its own for a clean end, and these are protected.
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import select
import ssl
import termios
from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

from distdbg.native import TcpRelayed

if TYPE_CHECKING:
    from collections.abc import Callable

BUFFER_NBYTES: Final = 256 << 10
#: How often each direction moves before others have their turn.
_ROUNDS: Final = 4
#: A handshake has a few kilobytes; a chain of certificates may have more.
_MAX_HANDSHAKE_NBYTES: Final = 256 << 10
HANDSHAKE_S: Final = 10.0
#: How long a peer may take to close, once all was sent to it.
_LINGER_S: Final = 2.0
#: How long a peer may take nothing of what was sent to it before whoever is inside has left.
_DRAIN_S: Final = 10.0
#: What waits for a peer at most: a buffer, and the answers of TLS itself, which it may ask for again and
#: again without taking one.
_MAX_UNSENT_NBYTES: Final = 4 * BUFFER_NBYTES
_GONE: Final = select.EPOLLHUP | select.EPOLLERR

NO_TLS: Final = (
    "it does not speak TLS, and DISTDBG_TLS=1 is set here: set it on all hosts, or on none"
)
OTHER_CERTIFICATE: Final = (
    "its certificate is not trusted: it has another token, or is not signed by DISTDBG_TLS_CA"
)
REFUSED: Final = (
    "it does not trust the certificate of this end: the token or DISTDBG_TLS_CA differs"
)
_HAS_SAID_TLS: Final = b"distdbgT"


class Scratch:
    """Buffers that all connections of a thread use."""

    def __init__(self) -> None:
        self.raw = memoryview(bytearray(BUFFER_NBYTES))
        self.plain = memoryview(bytearray(BUFFER_NBYTES))


class Channel:
    """`is_done`: it has ended, and waits for `release`."""

    def __init__(
        self,
        relayed: TcpRelayed,
        context: ssl.SSLContext,
        scratch: Scratch,
        now: float,
        *,
        silence_s: float,
        notice: bytes,
    ) -> None:
        """`notice`: what a client that does not begin with TLS within `silence_s` gets, in clear."""
        self.inside = relayed.end
        self.network = relayed.network
        self.is_done = False
        self.deadline: float | None = now + HANDSHAKE_S
        self._relayed = relayed
        self._is_server = relayed.is_server
        self._scratch = scratch
        self._notice = notice
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=self._is_server)
        # Into a buffer it returns how much there was, which typeshed does not know.
        self._read = cast("Callable[[int, memoryview], int]", self._tls.read)
        self._is_open = False
        self._heard_nbytes = 0
        self._to_network = memoryview(b"")
        self._to_inside = memoryview(b"")
        self._may_have_plain = False
        self._has_network_ended = False
        self._has_inside_ended = False
        self._is_network_shut = False
        self._is_inside_gone = False
        self._is_network_dry = self._is_inside_dry = False
        self._is_draining = False  # the deadline is that of what waits for the peer
        #: Descriptors of which no more events are wanted: they would be told again and again.
        self._unwatched: set[int] = set()
        if self._is_server:
            self.deadline = now + silence_s
        self._handshake_until = now + HANDSHAKE_S
        os.set_blocking(self.network, False)
        if not self._is_server:
            self._shake()

    # What the loop asks ------------------------------------------------------------------------

    def interest(self, fd: int) -> int | None:
        """The events of epoll that are waited for; None: none at all."""
        if fd in self._unwatched:
            return None
        if fd == self.inside:
            reads = self._is_open and not self._to_network and not self._has_inside_ended
            return (select.EPOLLIN if reads else 0) | (select.EPOLLOUT if self._to_inside else 0)
        reads = not self._to_inside and not self._has_network_ended
        return (select.EPOLLIN if reads else 0) | (select.EPOLLOUT if self._to_network else 0)

    def on_event(self, fd: int, events: int, now: float) -> None:
        """Move what can be moved."""
        if fd == self.inside:
            self._is_inside_dry = False
        else:
            self._is_network_dry = False
        if events & _GONE:
            self._unwatched.add(fd)
            self._is_inside_dry = self._is_network_dry = False
            if fd == self.inside and not self._is_open and self._has_nothing_to_send():
                self._end()
                return
        self.step(now)

    def step(self, now: float) -> None:
        """Move what can be moved, as `on_event` does, without an event."""
        for _ in range(_ROUNDS):
            if self.is_done:
                return
            moved = self._flush_inside()
            moved |= self._from_network()
            moved |= self._flush_network()
            moved |= self._from_inside()
            if not moved:
                break
        if not self.is_done:
            self._pass_ends_on(now)

    def check(self, now: float) -> None:
        """What is late: a handshake, or the peer's end."""
        if self.is_done or self.deadline is None or now < self.deadline:
            return
        if (
            self._is_open
        ):  # whoever was inside has left, and the peer does not take the rest, or close
            self._end()
        elif self._is_server and not self._heard_nbytes:
            self._say_notice()
            self._fail(errno.EPROTO, NO_TLS)
        elif now < self._handshake_until:
            self.deadline = self._handshake_until
        else:
            self._fail(errno.ETIMEDOUT, "it does not complete the TLS handshake")

    @property
    def is_flushed(self) -> bool:
        """Whether nothing is on its way to the network any more."""
        return self.is_done or self._is_network_shut

    def flush(self, now: float) -> bool:
        """Move what is inside; False while the network does not take it."""
        self._is_inside_dry = False
        self.step(now)
        return self.is_done or not self._is_open or (self._is_inside_dry and not self._to_network)

    def give_up(self, error: Exception) -> None:
        """What nobody foresaw has happened to this connection, and shall not happen to others."""
        self._fail(errno.EIO, f"{type(error).__name__}: {error}")

    def release(self) -> None:
        """Close both descriptors; what is on its way is lost."""
        self._end()
        self._relayed.close()

    def _has_nothing_to_send(self) -> bool:
        """Whoever is inside has left: a server's greeting is for nobody any more."""
        if self._is_server:
            return True
        waiting = array.array("i", [0])
        fcntl.ioctl(self.inside, termios.FIONREAD, waiting)
        return waiting[0] == 0

    # From the network to the inside --------------------------------------------------------------

    def _from_network(self) -> bool:
        if self.is_done or self._to_inside or self._has_network_ended or self._is_network_dry:
            return False
        raw = self._scratch.raw
        try:
            got = os.readv(self.network, [raw])
            self._is_network_dry = 0 < got < BUFFER_NBYTES and self.network not in self._unwatched
        except BlockingIOError:
            self._is_network_dry = True
            return False
        except OSError as error:
            if self._has_inside_ended and self._is_network_shut:
                self._end()
            else:
                self._fail(error.errno or errno.EIO, error.strerror or str(error))
            return False
        if self._is_inside_gone:
            self._has_network_ended = not got
            return True  # nobody is there to read it
        if got == 0:
            # TLS is not told: after an end that it does not expect it would send nothing any more.
            self._has_network_ended = True
            if not self._is_open:
                self._fail(errno.ECONNRESET, "it closed the connection in the TLS handshake")
                return False
        else:
            if not self._heard_nbytes and not self._is_tls(bytes(raw[:got])):
                return False
            self._heard_nbytes += got
            self._in.write(raw[:got])
        if not self._is_open:
            if self._heard_nbytes > _MAX_HANDSHAKE_NBYTES:
                self._fail(errno.EPROTO, "it sends more than a TLS handshake has")
                return False
            self._shake()
        if self._is_open:
            self._decrypt()
            self._answer()
        return True

    def _answer(self) -> None:
        """Send what TLS itself has to say to what has come: new keys, where the peer wants them."""
        self._take_out()
        if len(self._to_network) > _MAX_UNSENT_NBYTES and not self.is_done:
            self._fail(errno.EPROTO, "it does not take the answers that it asks for")
        self._flush_network()

    def _is_tls(self, first: bytes) -> bool:
        """The first bytes of a server without TLS are a greeting; what is neither is left to OpenSSL."""
        if first.startswith(_HAS_SAID_TLS):  # this end was too slow; the next try may be faster
            self._fail(errno.ETIMEDOUT, "it did not wait for the TLS handshake")
        elif first[0] != 0x16 and first[0] != 0x15:
            if self._is_server:
                self._say_notice()
            self._fail(errno.EPROTO, NO_TLS)
        return not self.is_done

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
            self._is_open = True
            self.deadline = None
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._take_out()
            self._flush_network()  # the alert
            self._fail(*_words_of(error))
            return
        self._take_out()
        self._flush_network()

    def _decrypt(self) -> None:
        plain = self._scratch.plain
        while not self._to_inside and not self.is_done:
            filled = 0
            self._may_have_plain = False
            try:
                while filled < BUFFER_NBYTES:
                    got = self._read(BUFFER_NBYTES - filled, plain[filled:])
                    if not got:
                        self._has_network_ended = True
                        break
                    filled += got
                else:
                    self._may_have_plain = True
            except ssl.SSLWantReadError:
                pass
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                self._has_network_ended = True
            except ssl.SSLError as error:
                self._fail(*_words_of(error))
                return
            if filled:
                self._to_inside = plain[:filled]
                self._flush_inside()
                if self._to_inside:  # the buffer is for others now
                    self._to_inside = memoryview(bytes(self._to_inside))
                    self._may_have_plain = True
            if not self._may_have_plain:
                break

    def _flush_inside(self) -> bool:
        had = len(self._to_inside)
        if not had:
            if self._may_have_plain and not self.is_done:
                self._decrypt()
            return False
        try:
            while self._to_inside:
                self._to_inside = self._to_inside[os.write(self.inside, self._to_inside) :]
        except BlockingIOError:
            pass
        except OSError:  # whoever was there has closed it
            self._leave_inside()
        return len(self._to_inside) < had

    # From the inside to the network --------------------------------------------------------------

    def _from_inside(self) -> bool:
        if not self._is_open or self.is_done or self._to_network or self._has_inside_ended:
            return False
        if self._is_inside_dry:
            return False
        raw = self._scratch.raw
        try:
            got = os.readv(self.inside, [raw])
            self._is_inside_dry = 0 < got < BUFFER_NBYTES and self.inside not in self._unwatched
        except BlockingIOError:
            self._is_inside_dry = True
            return False
        except OSError:
            got = 0
        if got == 0:
            self._has_inside_ended = self._is_inside_dry = True
            return False
        sent = 0
        try:
            while sent < got:
                sent += self._tls.write(raw[sent:got])
        except ssl.SSLError as error:
            self._fail(*_words_of(error))
            return False
        self._take_out()
        self._flush_network()
        return True

    def _take_out(self) -> None:
        if self._out.pending:
            waits = self._to_network
            taken = self._out.read()
            self._to_network = memoryview(bytes(waits) + taken if waits else taken)

    def _flush_network(self) -> bool:
        had = len(self._to_network)
        if not had or self.is_done:
            return False
        try:
            while self._to_network:
                self._to_network = self._to_network[os.write(self.network, self._to_network) :]
        except BlockingIOError:
            pass
        except OSError as error:
            self._to_network = memoryview(b"")
            self._has_inside_ended = True  # nothing leaves any more; what has come is still read
            if error.errno not in (errno.EPIPE, errno.ECONNRESET):
                self._fail(error.errno or errno.EIO, error.strerror or str(error))
        if len(self._to_network) == had:
            return False
        if self._is_draining:
            self.deadline, self._is_draining = None, False  # it takes something
        return True

    # The end -------------------------------------------------------------------------------------

    def _pass_ends_on(self, now: float) -> None:
        if self._has_inside_ended and not self._to_network and not self._is_network_shut:
            self._relayed.shut_network()
            self._is_network_shut = True
        has_left = self._is_inside_gone or self.inside in self._unwatched
        if has_left and self._is_open and self._to_network and self.deadline is None:
            self.deadline, self._is_draining = now + _DRAIN_S, True
        if has_left and self._has_inside_ended and self._is_network_shut:
            self._leave_inside()
            if self.deadline is None:
                self.deadline = now + _LINGER_S
        if not self._has_network_ended or self._to_inside or self._may_have_plain:
            return
        if self._has_inside_ended and not self._to_network:
            self._end()
        elif not self._is_inside_gone:
            self._relayed.shut_end()

    def _leave_inside(self) -> None:
        """Nobody reads there any more."""
        self._is_inside_gone = True
        self._to_inside = memoryview(b"")
        self._may_have_plain = False
        self._unwatched.add(self.inside)

    def _say_notice(self) -> None:
        with suppress(OSError):
            os.write(self.network, self._notice)

    def _fail(self, error_number: int, words: str) -> None:
        self._relayed.fail(error_number, words)
        self._end()

    def _end(self) -> None:
        self.is_done = True
        self._to_network = self._to_inside = memoryview(b"")


def _words_of(error: ssl.SSLError) -> tuple[int, str]:
    if isinstance(error, ssl.SSLCertVerificationError):
        return errno.EACCES, f"{OTHER_CERTIFICATE} ({error.verify_message})"
    reason = error.reason or ""
    if "ALERT" in reason and any(
        word in reason for word in ("UNKNOWN_CA", "CERTIFICATE", "DECRYPT_ERROR", "ACCESS_DENIED")
    ):
        return errno.EACCES, f"{REFUSED} ({reason.lower().replace('_', ' ')})"
    if "PEER_DID_NOT_RETURN_A_CERTIFICATE" in reason:
        return errno.EACCES, "it shows no certificate"
    return errno.EPROTO, f"TLS failed: {reason.lower().replace('_', ' ') or error}"
