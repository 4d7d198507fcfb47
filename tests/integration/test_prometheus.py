"""The operator's queries to a real Prometheus: over TLS, with credentials, and without."""

import asyncio
import shutil
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from e2e.harness.stack import Stack
from e2e.programs.prometheus import Guard, Prometheus
from tests.support.foreign import hostile_server
from tests.support.foreign.hostile_server import says, says_nothing
from tonnage.telemetry.access import Access
from tonnage.telemetry.prometheus import PrometheusSource, QueryOutcome

RETRY_SECONDS = 15.0
NOTHING_SCRAPED = {"global": {"scrape_interval": "1h"}, "scrape_configs": []}


class Asking:
    """A source with a clock that a test advances, and what it counted."""

    def __init__(self, url: str, ca: Path, deadline: float = 30.0) -> None:
        self.outcomes: list[QueryOutcome] = []
        self.now = time.monotonic()
        self.access = Access(url, ca_file=str(ca))
        self.source = PrometheusSource(
            self.access, deadline, RETRY_SECONDS, self.outcomes.append, monotonic=lambda: self.now
        )

    async def value(self, query: str) -> float | None:
        """Of the one series of an answer; None where there is no answer."""
        answer = await self.source.ask(query)
        if answer is None:
            return None
        (series,) = answer
        return series.value


@pytest.fixture(scope="module")
def guard(control_plane: Stack) -> Guard:
    """With the certificate that the API server made for itself; it is its own CA."""
    pki = control_plane.layout.pki
    return Guard(pki / "apiserver.crt", pki / "apiserver.key")


@pytest.fixture(scope="module")
def guarded(guard: Guard, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    prometheus = Prometheus(tmp_path_factory.mktemp("prometheus"), guard)
    prometheus.start(NOTHING_SCRAPED, {})
    yield prometheus
    prometheus.close()


def with_credentials(prometheus: Prometheus, guard: Guard) -> str:
    return prometheus.url.replace("//", f"//{guard.user}:{quote(guard.password)}@")


async def test_a_real_prometheus_answers_an_authorized_client_over_tls(
    guarded: Prometheus, guard: Guard
) -> None:
    asking = Asking(with_credentials(guarded, guard), guard.certificate)
    assert await asking.value("vector(2) * 21") == 42
    assert await asking.value("vector(0) / 0") is None, "NaN is no answer"
    assert await asking.value("1 / vector(0)") is None, "nor is infinity"
    assert await asking.source.ask("none_such") == ()
    assert set(asking.outcomes) == {QueryOutcome.ANSWERED}


@pytest.mark.parametrize(
    ("query", "want"),
    [
        pytest.param("vector(1", QueryOutcome.QUERY_REFUSED, id="not PromQL"),
        pytest.param("vector(1) + on() label_replace(", QueryOutcome.QUERY_REFUSED, id="nor this"),
        pytest.param("up[5m]", QueryOutcome.ANSWERED, id="a matrix of nothing is an empty list"),
        pytest.param("scalar(vector(1))", QueryOutcome.NOT_UNDERSTOOD, id="a scalar is no vector"),
    ],
)
async def test_each_refusal_of_a_real_prometheus_has_its_own_outcome(
    guarded: Prometheus, guard: Guard, query: str, want: QueryOutcome
) -> None:
    asking = Asking(with_credentials(guarded, guard), guard.certificate)
    await asking.source.ask(query)
    assert asking.outcomes == [want]


async def test_an_unauthorized_client_is_refused(guarded: Prometheus, guard: Guard) -> None:
    asking = Asking(guarded.url, guard.certificate)
    assert await asking.source.ask("vector(1)") is None
    assert asking.outcomes == [QueryOutcome.UNAUTHORIZED]


async def test_a_new_ca_is_used_without_a_restart(
    guarded: Prometheus, guard: Guard, tmp_path: Path
) -> None:
    ca = tmp_path / "ca.crt"
    shutil.copy(DEFAULT_CA_BUNDLE_PATH, ca)
    asking = Asking(with_credentials(guarded, guard), ca)
    assert await asking.value("vector(1)") is None
    shutil.copy(guard.certificate, ca)
    asking.now += RETRY_SECONDS
    assert await asking.value("vector(1)") == 1
    assert asking.outcomes == [QueryOutcome.TLS, QueryOutcome.ANSWERED]


async def test_only_the_cas_of_the_file_are_trusted(guarded: Prometheus, guard: Guard) -> None:
    asking = Asking(with_credentials(guarded, guard), guard.certificate)
    assert await asking.value("vector(1)") == 1
    cas_of_the_file = ssl.create_default_context(cafile=guard.certificate).get_ca_certs()
    assert asking.access.tls().get_ca_certs() == cas_of_the_file


async def test_a_bundle_of_the_environment_is_not_trusted(
    guarded: Prometheus, guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(guard.certificate))
    asking = Asking(with_credentials(guarded, guard), Path(DEFAULT_CA_BUNDLE_PATH))
    assert await asking.value("vector(1)") is None
    assert asking.outcomes == [QueryOutcome.TLS]


def tls_of(guard: Guard) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(guard.certificate, guard.key)
    return context


async def test_a_certificate_of_another_host_is_not_trusted(guard: Guard) -> None:
    async with hostile_server.serving(says(200, b"{}"), tls_of(guard), "127.0.0.2") as server:
        asking = Asking(server.url, guard.certificate)
        assert await asking.source.ask("vector(1)") is None
    assert asking.outcomes == [QueryOutcome.TLS]
    assert server.asked == []


async def test_a_server_that_hangs_behind_tls_frees_the_thread(guard: Guard) -> None:
    async with hostile_server.serving(says_nothing, tls_of(guard)) as server:
        asking = Asking(server.url, guard.certificate, deadline=0.5)
        assert await asking.source.ask("vector(1)") is None
        async with asyncio.timeout(60):
            await server.all_closed.wait()
    assert asking.outcomes == [QueryOutcome.TIMEOUT]


async def test_a_stopped_prometheus_gives_no_answer_and_a_restarted_one_does(
    tmp_path: Path,
) -> None:
    prometheus = Prometheus(tmp_path / "prometheus")
    asking = Asking(prometheus.url, Path(DEFAULT_CA_BUNDLE_PATH))
    assert await asking.value("vector(1)") is None
    prometheus.start(NOTHING_SCRAPED, {})
    try:
        assert await asking.value("vector(1)") is None, "it is asked again only in a while"
        asking.now += RETRY_SECONDS
        assert await asking.value("vector(1)") == 1
    finally:
        prometheus.close()
    assert asking.outcomes == [
        QueryOutcome.UNREACHABLE,
        QueryOutcome.HELD_BACK,
        QueryOutcome.ANSWERED,
    ]
