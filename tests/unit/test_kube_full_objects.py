"""Full objects are what Python's json reads of them, without their managedFields."""

import json
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client import V1ObjectMeta

from tests.support import cluster_bytes
from tests.support.scripted_server import Answer, serving
from tonnage.kube.full_objects import FullObjects, _Metadata
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS
from tonnage.kube.protocol import Object, TransientError, WatchEvent
from tonnage.watch.shallow_answers import ShallowResponse

LIST = "/apis/tonnage.dev/v1alpha1/inferencedeployments"
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))  # Go writes no half of a pair
NAMED = {"name": "a", "uid": "u", "resourceVersion": "1"}
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
)


def page_of(*items: Object) -> bytes:
    return json.dumps({"metadata": {"continue": "t"}, "items": items}).encode()


def without_managers(body: Object) -> Object:
    rest = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    return {**body, "metadata": rest}


@given(VALUES, st.booleans())
def test_values_are_read_as_json_reads_them(value: Any, is_ascii: bool) -> None:
    text = json.dumps({"items": [{"metadata": NAMED, "spec": value}]}, ensure_ascii=is_ascii)
    (found,) = FullObjects(INFERENCE_DEPLOYMENTS).page(text.encode()).objects
    assert repr(found["spec"]) == repr(json.loads(text)["items"][0]["spec"])


def test_full_objects_lack_only_their_managed_fields() -> None:
    itself = cluster_bytes.deployment(1)
    itself["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a"]}
    assert itself["metadata"]["managedFields"]
    page = FullObjects(DEPLOYMENTS).page(page_of(itself))
    assert (list(page.objects), page.token) == ([without_managers(itself)], "t")


def test_no_other_part_of_the_metadata_is_lost() -> None:
    parts = set(V1ObjectMeta.attribute_map.values())
    assert parts - set(_Metadata.__annotations__) == {"managedFields"}


def test_a_deeply_nested_object_hides_no_other_object() -> None:
    deep = f'{{"metadata": {json.dumps(NAMED)}, "spec": {"[" * 9_000}{"]" * 9_000}}}'
    other = json.dumps({"metadata": {**NAMED, "name": "other"}})
    body = f'{{"items": [{deep}, {other}]}}'.encode()
    found = FullObjects(INFERENCE_DEPLOYMENTS).page(body).objects
    assert [one["metadata"]["name"] for one in found] == ["a", "other"]


@pytest.mark.parametrize("status", [200, 403])
async def test_kopf_reads_lists_without_managed_fields_and_refusals_as_they_are(
    status: int,
) -> None:
    refusal = {"kind": "Status", "message": "no", "details": {"kind": "inferencedeployments"}}
    managed = {"metadata": {"name": "a", "managedFields": [{}]}, "spec": {}}
    whole = {"kind": "InferenceDeploymentList", "metadata": {"continue": ""}, "items": [managed]}
    answer = Answer(
        status, whole if status == 200 else refusal, {"Content-Type": "application/json"}
    )
    async with (
        serving(answer) as server,
        aiohttp.ClientSession(response_class=ShallowResponse) as session,
        session.get(server.url + LIST) as response,
    ):
        found = await response.json()
    want = {**whole, "items": [without_managers(managed)]} if status == 200 else refusal
    assert found == want


def event_of(event_type: str, item: Object) -> bytes:
    return json.dumps({"type": event_type, "object": item}).encode()


def test_an_event_names_the_kind_and_lacks_only_managed_fields() -> None:
    itself = cluster_bytes.deployment(1)
    event = FullObjects(DEPLOYMENTS).event(event_of("MODIFIED", itself))
    named = {"apiVersion": "apps/v1", "kind": "Deployment"}
    assert event == WatchEvent("MODIFIED", named | without_managers(itself))


def test_a_page_and_a_watch_say_the_same_of_an_object() -> None:
    """So an object that is listed again is unchanged."""
    reader, itself = FullObjects(DEPLOYMENTS), cluster_bytes.deployment(1)
    (listed,) = reader.page(page_of(itself)).objects
    assert reader.event(event_of("ADDED", itself)).object == {**listed}


def test_a_deeply_nested_object_does_not_break_its_watch() -> None:
    line = f'{{"type": "ADDED", "object": {{"metadata": {json.dumps(NAMED)}, "spec": {{"a": '
    line += "[" * 9_000 + "]" * 9_000 + "}}}"
    event = FullObjects(INFERENCE_DEPLOYMENTS).event(line.encode())
    assert (event.type, event.object["metadata"]["name"]) == ("ADDED", "a")


def test_errors_and_bookmarks_are_handed_on() -> None:
    status = {"kind": "Status", "status": "Failure", "code": 410, "message": "too old"}
    reader = FullObjects(DEPLOYMENTS)
    assert reader.event(event_of("ERROR", status)) == WatchEvent("ERROR", status)
    bookmark = reader.event(event_of("BOOKMARK", {"metadata": {"resourceVersion": "9"}}))
    assert bookmark.object["metadata"]["resourceVersion"] == "9"


@pytest.mark.parametrize("lacking", ["name", "uid", "resourceVersion"])
def test_an_object_that_does_not_say_which_one_it_is_is_a_transient_error(lacking: str) -> None:
    metadata = {name: value for name, value in NAMED.items() if name != lacking}
    reader = FullObjects(DEPLOYMENTS)
    with pytest.raises(TransientError, match=f"deployments.*{lacking}"):
        reader.page(page_of({"metadata": metadata}))
    with pytest.raises(TransientError, match=f"deployments.*{lacking}"):
        reader.event(event_of("ADDED", {"metadata": metadata}))
