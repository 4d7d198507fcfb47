"""Over TLS, too, heartbeats wait in the socket: asyncio reads on by itself unless it is told."""

from asyncio.sslproto import SSLProtocol

import pytest

from e2e.stack import Stack
from tests.support.told_of_nodes import Certificate, following
from tonnage.kube import gathering as module
from tonnage.kube.gathering import Gathering


@pytest.fixture
def certificate(control_plane: Stack) -> Certificate:
    """The one that the API server made for itself."""
    pki = control_plane.layout.pki
    return Certificate(pki / "apiserver.crt", pki / "apiserver.key")


class Reads:
    """Counts how often TLS has read from a socket, and the process woke up for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, read = 0, SSLProtocol.buffer_updated

        def note(protocol: SSLProtocol, size: int) -> None:
            self.count += not protocol._server_side
            read(protocol, size)

        monkeypatch.setattr(SSLProtocol, "buffer_updated", note)


async def test_one_wakes_up_once_for_all_that_is_told_while_it_gathers(
    monkeypatch: pytest.MonkeyPatch, certificate: Certificate
) -> None:
    monkeypatch.setattr(module, "GATHER_SECONDS", 60.0)
    reads = Reads(monkeypatch)
    async with following(monkeypatch, Gathering(), certificate=certificate) as told:
        await told.tell("a")
        assert told.heard == ["a"]
        before = reads.count
        for name in "bcdef":
            await told.tell(name)
        assert (told.heard, reads.count) == (["a"], before + 1)
        await told.gathering.attend()
        assert told.heard == list("abcdef")
