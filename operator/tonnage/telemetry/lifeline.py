"""A socket that one thread waits on, and that another can cut."""

import socket
from contextlib import suppress
from threading import Lock
from types import TracebackType


class Lifeline:
    """Of one connection. A timeout of a socket is for each byte; cutting it ends the waiting."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._twin: socket.socket | None = None
        self._is_cut = False

    def hold(self, connected: socket.socket) -> socket.socket:
        """Take note of the socket, and return it. Raises OSError when it is cut already."""
        with self._lock:
            if self._is_cut:
                connected.close()
                raise ConnectionAbortedError("given up")
            # TLS moves the descriptor to another object; a copy stays good for a shutdown.
            self._twin = connected.dup()
        return connected

    def cut(self) -> None:
        """End all waiting on the socket, at once and from now on."""
        with self._lock:
            self._is_cut = True
            if self._twin is not None:
                with suppress(OSError):  # the other end may have closed it
                    self._twin.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> "Lifeline":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            if self._twin is not None:
                self._twin.close()
                self._twin = None
