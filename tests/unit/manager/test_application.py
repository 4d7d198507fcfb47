"""kopf's registry and settings."""

import kopf
import pytest

from tonnage import delays
from tonnage.api.shard import UNNAMED_SHARD, Shard
from tonnage.kube.kinds import ACCELERATOR_POOLS, INFERENCE_DEPLOYMENTS
from tonnage.manager.application import build_registry, build_settings
from tonnage.manager.scope import WATCHED_BY_KOPF


async def nothing() -> None:
    """A hook that does nothing."""


async def session() -> kopf.AiohttpSession:
    raise AssertionError("no test logs in")


@pytest.fixture
def registry() -> kopf.OperatorRegistry:
    return build_registry(
        kinds=WATCHED_BY_KOPF, observe=lambda *_: None, login=session, start=nothing, stop=nothing
    )


def test_only_handlers_that_write_nothing_are_registered(registry: kopf.OperatorRegistry) -> None:
    assert len(registry._watching.get_all_handlers()) == len(WATCHED_BY_KOPF)
    for part in ("_changing", "_spawning", "_indexing", "_webhooks"):
        assert list(getattr(registry, part).get_all_handlers()) == []


def test_nothing_is_registered_globally() -> None:
    assert list(kopf.get_default_registry()._watching.get_all_handlers()) == []


def test_each_kind_is_watched_by_its_full_name(registry: kopf.OperatorRegistry) -> None:
    selectors = [handler.selector for handler in registry._watching.get_all_handlers()]
    watched = {
        (selector.group, selector.version, selector.any_name) for selector in selectors if selector
    }
    assert watched == {(kind.group, kind.version, kind.plural) for kind in WATCHED_BY_KOPF}


async def test_event_is_passed_on_unchanged() -> None:
    observed = []
    registry = build_registry(
        kinds=WATCHED_BY_KOPF,
        observe=lambda *event: observed.append(event),
        login=session,
        start=nothing,
        stop=nothing,
    )
    body = {"metadata": {"name": "llama"}}
    for handler in registry._watching.get_all_handlers():
        if handler.id == INFERENCE_DEPLOYMENTS.plural:
            await handler.fn(event={"type": "DELETED", "object": body})
    assert observed == [(INFERENCE_DEPLOYMENTS, "DELETED", body)]


def test_only_the_given_kinds_are_watched() -> None:
    registry = build_registry(
        kinds=[ACCELERATOR_POOLS],
        observe=lambda *_: None,
        login=session,
        start=nothing,
        stop=nothing,
    )
    handlers = registry._watching.get_all_handlers()
    assert [handler.id for handler in handlers] == ["acceleratorpools"]


def test_kopf_posts_no_events_and_has_no_peering_and_no_scanning() -> None:
    settings = build_settings(UNNAMED_SHARD)
    assert not settings.posting.enabled
    assert settings.peering.standalone
    assert settings.scanning.disabled


def test_kopf_abandons_a_silent_watch_as_soon_as_the_reflectors_do() -> None:
    watching = build_settings(UNNAMED_SHARD).watching
    assert watching.inactivity_timeout == delays.WATCH_SILENT


def test_kopf_stores_no_last_seen_state_on_objects() -> None:
    storage = build_settings(UNNAMED_SHARD).persistence.diffbase_storage
    patch = kopf.Patch()
    body = kopf.Body({"metadata": {"name": "llama"}})
    storage.store(body=body, patch=patch, essence={"spec": {}})
    assert not patch
    assert storage.fetch(body=body) is None


def test_kopf_selects_the_objects_of_the_shard() -> None:
    for shard, selector in [
        (UNNAMED_SHARD, "!tonnage.dev/shard"),
        (Shard("east"), "tonnage.dev/shard=east"),
    ]:
        selectors = build_settings(shard).watching.label_selectors
        for kind in WATCHED_BY_KOPF:
            assert selectors[kind.group, kind.version, kind.plural] == selector


def test_kopf_retries_through_an_outage_of_a_month() -> None:
    assert delays.KOPF_BACKOFFS[0] <= 1
    assert all(0 < seconds <= 30 for seconds in delays.KOPF_BACKOFFS)
    assert sum(delays.KOPF_BACKOFFS) > 30 * 24 * 3600
    assert build_settings(UNNAMED_SHARD).networking.error_backoffs == delays.KOPF_BACKOFFS
