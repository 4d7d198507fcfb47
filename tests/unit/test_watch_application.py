"""What kopf is told to do, and what it must never be told to."""

from itertools import islice

import kopf
import pytest

from tonnage.kube.kinds import DEPLOYMENTS, NODES, PODS, SERVICES
from tonnage.watch.application import WATCHED, EndlessBackoff, build_registry, build_settings


async def nothing() -> None:
    """A step without work."""


async def session() -> kopf.AiohttpSession:
    raise AssertionError("nobody logs in here")


@pytest.fixture
def registry() -> kopf.OperatorRegistry:
    return build_registry(
        kinds=WATCHED, route=lambda *_: None, login=session, start=nothing, stop=nothing
    )


def test_only_handlers_that_write_nothing_are_registered(registry: kopf.OperatorRegistry) -> None:
    assert len(registry._watching.get_all_handlers()) == len(WATCHED)
    for part in ("_changing", "_spawning", "_indexing", "_webhooks"):
        assert list(getattr(registry, part).get_all_handlers()) == []


def test_nothing_is_registered_globally() -> None:
    assert list(kopf.get_default_registry()._watching.get_all_handlers()) == []


def test_each_kind_is_watched_by_its_full_name(registry: kopf.OperatorRegistry) -> None:
    selectors = [handler.selector for handler in registry._watching.get_all_handlers()]
    have = {(each.group, each.version, each.any_name) for each in selectors if each}
    assert have == {(kind.group, kind.version, kind.plural) for kind in WATCHED}


async def test_event_is_handed_on_as_it_came() -> None:
    routed = []
    registry = build_registry(
        kinds=WATCHED,
        route=lambda *event: routed.append(event),
        login=session,
        start=nothing,
        stop=nothing,
    )
    body = {"metadata": {"name": "gpu-1"}}
    for handler in registry._watching.get_all_handlers():
        if handler.id == NODES.plural:
            await handler.fn(event={"type": "DELETED", "object": body})
    assert routed == [(NODES, "DELETED", body)]


def test_only_the_kinds_asked_for_are_watched() -> None:
    registry = build_registry(
        kinds=[PODS], route=lambda *_: None, login=session, start=nothing, stop=nothing
    )
    assert [each.id for each in registry._watching.get_all_handlers()] == ["pods"]


def test_kopf_keeps_to_itself() -> None:
    settings = build_settings()
    assert not settings.posting.enabled
    assert settings.peering.standalone
    assert settings.scanning.disabled


def test_kopf_remembers_nothing_on_objects() -> None:
    persistence = build_settings().persistence
    patch = kopf.Patch()
    body = kopf.Body({"metadata": {"name": "llama"}})
    record = {"started": "now"}
    persistence.diffbase_storage.store(body=body, patch=patch, essence={"spec": {}})
    persistence.progress_storage.store(key="k", record=record, body=body, patch=patch)
    persistence.progress_storage.touch(body=body, patch=patch, value="now")
    persistence.progress_storage.purge(key="k", body=body, patch=patch)
    assert not patch
    assert persistence.diffbase_storage.fetch(body=body) is None
    assert persistence.progress_storage.fetch(key="k", body=body) is None


def test_selectors_are_those_of_the_server() -> None:
    watching = build_settings().watching
    for kind in (DEPLOYMENTS, SERVICES):
        key = (kind.group, kind.version, kind.plural)
        assert watching.label_selectors[key] == "app.kubernetes.io/managed-by=tonnage"
    pods = (PODS.group, PODS.version, PODS.plural)
    assert pods not in watching.label_selectors
    assert "status.phase!=Succeeded" in watching.field_selectors[pods]


def test_outage_never_ends_the_retries() -> None:
    seconds = list(islice(EndlessBackoff(), 200))
    assert len(seconds) == 200
    assert seconds[0] <= 1
    assert all(0 < each <= 30 for each in seconds)
    assert seconds[-1] >= 15
