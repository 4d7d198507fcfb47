"""Full objects are what Python's json parses, without managedFields."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client import V1ObjectMeta

from tests.support.api_server import cluster_bytes
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS
from tonnage.kube.objects import ObjectParser, _FullMetadata
from tonnage.kube.protocol import Kind, Object, ObjectParts, TransientError, WatchEvent

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))  # Go writes no single surrogate
IDENTITY = {"name": "a", "uid": "u", "resourceVersion": "1"}
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
)


def full_objects(kind: Kind) -> ObjectParser:
    return ObjectParser(kind, ObjectParts.FULL)


def page_of(*items: Object) -> bytes:
    return json.dumps({"metadata": {"continue": "t"}, "items": items}).encode()


def without_managed_fields(body: Object) -> Object:
    rest = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    return {**body, "metadata": rest}


@given(VALUES, st.booleans())
def test_values_are_read_as_json_reads_them(value: Any, is_ascii: bool) -> None:
    text = json.dumps(
        {"metadata": {}, "items": [{"metadata": IDENTITY, "spec": value}]}, ensure_ascii=is_ascii
    )
    (item,) = full_objects(INFERENCE_DEPLOYMENTS).page(text.encode()).objects
    assert repr(item["spec"]) == repr(json.loads(text)["items"][0]["spec"])


def test_full_objects_lack_only_their_managed_fields() -> None:
    deployment = cluster_bytes.deployment(1)
    deployment["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a"]}
    assert deployment["metadata"]["managedFields"]
    page = full_objects(DEPLOYMENTS).page(page_of(deployment))
    assert (list(page.objects), page.token) == ([without_managed_fields(deployment)], "t")


def test_no_other_part_of_the_metadata_is_lost() -> None:
    parts = set(V1ObjectMeta.attribute_map.values())
    assert parts - set(_FullMetadata.__annotations__) == {"managedFields"}


def test_a_deeply_nested_object_hides_no_other_object() -> None:
    deep = f'{{"metadata": {json.dumps(IDENTITY)}, "spec": {"[" * 9_000}{"]" * 9_000}}}'
    other = json.dumps({"metadata": {**IDENTITY, "name": "other"}})
    body = f'{{"metadata": {{}}, "items": [{deep}, {other}]}}'.encode()
    objects = full_objects(INFERENCE_DEPLOYMENTS).page(body).objects
    assert [each["metadata"]["name"] for each in objects] == ["a", "other"]


def event_of(event_type: str, item: Object) -> bytes:
    return json.dumps({"type": event_type, "object": item}).encode()


def test_an_event_has_the_kind_and_lacks_only_managed_fields() -> None:
    deployment = cluster_bytes.deployment(1)
    event = full_objects(DEPLOYMENTS).event(event_of("MODIFIED", deployment))
    type_meta = {"apiVersion": "apps/v1", "kind": "Deployment"}
    assert event == WatchEvent("MODIFIED", type_meta | without_managed_fields(deployment))


def test_a_page_and_a_watch_parse_an_object_alike() -> None:
    """So a relist changes no object."""
    reader, deployment = full_objects(DEPLOYMENTS), cluster_bytes.deployment(1)
    (listed,) = reader.page(page_of(deployment)).objects
    assert reader.event(event_of("ADDED", deployment)).object == {**listed}


def test_a_deeply_nested_object_does_not_break_its_watch() -> None:
    line = f'{{"type": "ADDED", "object": {{"metadata": {json.dumps(IDENTITY)}, "spec": {{"a": '
    line += "[" * 9_000 + "]" * 9_000 + "}}}"
    event = full_objects(INFERENCE_DEPLOYMENTS).event(line.encode())
    assert (event.type, event.object["metadata"]["name"]) == ("ADDED", "a")


def test_errors_and_bookmarks_are_passed_on() -> None:
    status = {"kind": "Status", "status": "Failure", "code": 410, "message": "too old"}
    reader = full_objects(DEPLOYMENTS)
    assert reader.event(event_of("ERROR", status)) == WatchEvent("ERROR", status)
    bookmark = reader.event(event_of("BOOKMARK", {"metadata": {"resourceVersion": "9"}}))
    assert bookmark.object["metadata"]["resourceVersion"] == "9"


@pytest.mark.parametrize("lacking", ["name", "uid", "resourceVersion"])
def test_an_object_without_an_identity_is_a_transient_error(lacking: str) -> None:
    metadata = {name: value for name, value in IDENTITY.items() if name != lacking}
    reader = full_objects(DEPLOYMENTS)
    with pytest.raises(TransientError, match=f"deployments.*{lacking}"):
        reader.page(page_of({"metadata": metadata}))
    with pytest.raises(TransientError, match=f"deployments.*{lacking}"):
        reader.event(event_of("ADDED", {"metadata": metadata}))
