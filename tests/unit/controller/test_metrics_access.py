"""Who may read /metrics: whose token the API server accepts, and who may get the path."""

import asyncio

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from tests.support.faults.fake_clock import FakeClock
from tonnage import delays
from tonnage.controller.health import Health
from tonnage.controller.metrics_access import MAX_REVIEWS, MAX_VERDICTS, MetricsAccess
from tonnage.controller.server import build_app, serve
from tonnage.kube.access_review import Verdict
from tonnage.kube.protocol import ForbiddenError

VERDICTS = {
    "prometheus": Verdict.ALLOWED,
    "a-pod": Verdict.FORBIDDEN,
}


class Reviews:
    """Reviews as an API server answers them; `pending` holds all of them back."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.full = asyncio.Event()
        self.error: Exception | None = None
        self.pending = asyncio.Event()
        self.pending.set()

    async def review(self, token: str, path: str) -> Verdict:
        assert path == "/metrics"
        self.tokens.append(token)
        if len(self.tokens) > MAX_REVIEWS:
            self.full.set()
        await self.pending.wait()
        if self.error is not None:
            raise self.error
        return VERDICTS.get(token, Verdict.UNAUTHENTICATED)


@pytest.fixture
def reviews() -> Reviews:
    return Reviews()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def access(reviews: Reviews, clock: FakeClock) -> MetricsAccess:
    return MetricsAccess(reviews.review, clock.monotonic)


async def status(access: MetricsAccess, authorization: str) -> int:
    refusal = await access.refuse(authorization)
    return 200 if refusal is None else refusal.status


@pytest.mark.parametrize(
    ("authorization", "want"),
    [
        ("Bearer prometheus", 200),
        ("bearer  prometheus ", 200),
        ("Bearer a-pod", 403),
        ("Bearer unknown", 401),
        ("Bearer ", 401),
        ("Basic prometheus", 401),
        ("prometheus", 401),
        ("", 401),
    ],
)
async def test_a_caller_needs_a_token_whose_user_may_get_the_path(
    access: MetricsAccess, authorization: str, want: int
) -> None:
    assert await status(access, authorization) == want


@pytest.mark.parametrize("authorization", ["", "Bearer ", "Basic x"])
async def test_a_caller_without_a_token_costs_the_api_server_nothing(
    access: MetricsAccess, reviews: Reviews, authorization: str
) -> None:
    await access.refuse(authorization)
    assert reviews.tokens == []


@pytest.mark.parametrize(
    ("token", "seconds"),
    [("prometheus", delays.KEEP_ALLOWED), ("a-pod", delays.KEEP_REFUSED)],
)
async def test_a_verdict_counts_for_a_while(
    access: MetricsAccess, reviews: Reviews, clock: FakeClock, token: str, seconds: float
) -> None:
    await access.refuse(f"Bearer {token}")
    clock.advance(seconds - 1)
    await access.refuse(f"Bearer {token}")
    assert reviews.tokens == [token]
    clock.advance(1)
    await access.refuse(f"Bearer {token}")
    assert reviews.tokens == [token, token]


async def test_a_review_that_fails_gives_nothing_away_and_is_not_kept(
    access: MetricsAccess, reviews: Reviews, caplog: pytest.LogCaptureFixture
) -> None:
    reviews.error = ForbiddenError("may not create tokenreviews")
    refusal = await access.refuse("Bearer prometheus")
    assert refusal is not None
    assert refusal.status == 503
    assert "tokenreviews" not in refusal.message
    assert "may not create tokenreviews" in caplog.text
    reviews.error = None
    assert await status(access, "Bearer prometheus") == 200


async def test_few_tokens_are_under_review_at_a_time(
    access: MetricsAccess, reviews: Reviews
) -> None:
    assert await status(access, "Bearer prometheus") == 200
    reviews.pending.clear()
    waiting = [asyncio.create_task(status(access, f"Bearer {n}")) for n in range(MAX_REVIEWS)]
    await reviews.full.wait()
    assert await status(access, "Bearer one-more") == 429
    assert await status(access, "Bearer prometheus") == 200
    reviews.pending.set()
    assert await asyncio.gather(*waiting) == [401] * MAX_REVIEWS


async def test_verdicts_on_ever_new_tokens_take_bounded_memory(
    access: MetricsAccess, reviews: Reviews
) -> None:
    for number in range(MAX_VERDICTS + 1):
        await access.refuse(f"Bearer {number}")
    await access.refuse(f"Bearer {MAX_VERDICTS}")
    assert len(reviews.tokens) == MAX_VERDICTS + 1
    await access.refuse("Bearer 0")
    assert len(reviews.tokens) == MAX_VERDICTS + 2


async def test_only_the_metrics_ask_for_a_token(access: MetricsAccess) -> None:
    clock = FakeClock().monotonic
    health = Health(oldest_in_flight=lambda: 0.0, max_in_flight_seconds=240, clock=clock)
    app = build_app(health, CollectorRegistry(), access)
    answers = {}
    async with serve(app, "127.0.0.1", 0) as port, aiohttp.ClientSession() as session:
        for page, headers in (
            ("healthz", {}),
            ("readyz", {}),
            ("metrics", {}),
            ("metrics", {"Authorization": "Bearer a-pod"}),
            ("metrics", {"Authorization": "Bearer prometheus"}),
        ):
            url = f"http://127.0.0.1:{port}/{page}"
            async with session.get(url, headers=headers) as response:
                answers[page, headers.get("Authorization", "")] = response.status
                assert "nonResourceURLs" in await response.text() or response.status != 403
    assert list(answers.values()) == [200, 200, 401, 403, 200]
