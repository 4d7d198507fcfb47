"""Whole objects are what Python's json reads of them, but for who manages their fields."""

import json
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client import V1ObjectMeta

from tests.support import cluster_bytes
from tests.support.scripted_server import Answer, serving
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS
from tonnage.kube.protocol import Object
from tonnage.kube.whole import WholeReader, _Metadata
from tonnage.watch.shallow_answers import ShallowResponse

LIST = "/apis/tonnage.dev/v1alpha1/inferencedeployments"
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))  # Go writes no half of a pair
NAMED = {"name": "a", "uid": "u"}
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
    (found,) = WholeReader(INFERENCE_DEPLOYMENTS).page(text.encode()).objects
    assert repr(found["spec"]) == repr(json.loads(text)["items"][0]["spec"])


def test_objects_are_whole_but_for_their_managers() -> None:
    itself = cluster_bytes.deployment(1)
    itself["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a"]}
    assert itself["metadata"]["managedFields"]
    page = WholeReader(DEPLOYMENTS).page(page_of(itself))
    assert (list(page.objects), page.token) == ([without_managers(itself)], "t")


def test_no_other_part_of_the_metadata_is_lost() -> None:
    parts = set(V1ObjectMeta.attribute_map.values())
    assert parts - set(_Metadata.__annotations__) == {"managedFields"}


def test_what_one_user_nests_hides_no_object_of_others() -> None:
    deep = '{"metadata": {"name": "deep", "uid": "d"}, "spec": ' + "[" * 9_000 + "]" * 9_000 + "}"
    body = f'{{"items": [{deep}, {{"metadata": {{"name": "other", "uid": "o"}}}}]}}'.encode()
    found = WholeReader(INFERENCE_DEPLOYMENTS).page(body).objects
    assert [one["metadata"]["name"] for one in found] == ["deep", "other"]


@pytest.mark.parametrize("status", [200, 403])
async def test_kopf_reads_lists_so_and_refusals_as_they_are(status: int) -> None:
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
