"""The merge of pod templates; tests/integration/test_strategic_merge.py has the real API server."""

from copy import deepcopy
from typing import Any

import pytest

from tests.support.specs.pod_patches import BASE, CONTAINER_PATCHES, SPEC_PATCHES, random_patch
from tonnage.workloads.pod.strategic_merge import MergeError, merge_container, merge_pod_spec


def names(items: list[dict[str, Any]], key: str = "name") -> list[Any]:
    return [item[key] for item in items]


@pytest.mark.parametrize("seed", range(50))
def test_neither_side_is_changed(seed: int) -> None:
    base, patch = deepcopy(BASE), random_patch(seed)
    given = deepcopy(patch)
    merge_pod_spec(base, patch)
    assert (base, patch) == (BASE, given)


@pytest.mark.parametrize("seed", range(50))
def test_a_patch_says_nothing_new_to_what_has_it(seed: int) -> None:
    once = merge_pod_spec(BASE, random_patch(seed))
    again = merge_pod_spec(once, random_patch(seed))
    if "livenessProbe" not in repr(random_patch(seed)) and "dnsConfig" not in random_patch(seed):
        assert again == once


def test_an_empty_patch_is_none() -> None:
    assert merge_pod_spec(BASE, {}) == BASE


def test_items_merge_by_their_key_and_new_ones_come_first() -> None:
    merged = merge_pod_spec(
        BASE,
        {"containers": [{"name": "side", "image": "s"}, {"name": "proxy", "image": "envoy:2"}]},
    )
    assert names(merged["containers"]) == ["side", "vllm", "proxy"]
    assert merged["containers"][2] == {"name": "proxy", "image": "envoy:2"}
    assert merged["containers"][1] == BASE["containers"][0]


def test_lists_without_a_key_are_replaced() -> None:
    merged = merge_container(BASE["containers"][0], {"args": ["x"]})
    assert merged["args"] == ["x"]
    tolerations = [{"key": "spot", "operator": "Exists"}]
    assert merge_pod_spec(BASE, {"tolerations": tolerations})["tolerations"] == tolerations


def test_null_and_directives_delete() -> None:
    merged = merge_pod_spec(
        BASE,
        {
            "securityContext": {"runAsUser": None},
            "initContainers": None,
            "volumes": [{"name": "shm", "$patch": "delete"}],
            "containers": [{"name": "vllm", "resources": {"$patch": "delete"}}],
        },
    )
    assert "runAsUser" not in merged["securityContext"]
    assert merged["securityContext"]["fsGroup"] == 2000
    assert "initContainers" not in merged
    assert names(merged["volumes"]) == ["cache", "mine"]
    assert merged["containers"][0]["resources"] == {}


def test_retain_keys_replaces_the_source_of_a_volume() -> None:
    claim = {"claimName": "c"}
    volume = {"name": "cache", "$retainKeys": ["name", "pvc"], "pvc": claim}
    assert merge_pod_spec(BASE, {"volumes": [volume]})["volumes"][0] == {
        "name": "cache",
        "pvc": claim,
    }


@pytest.mark.parametrize(
    ("patch", "want"),
    [
        ({"containers": [{"image": "x"}]}, "spec.containers[0]: name is required"),
        ({"containers": {}}, "spec.containers: expected a list"),
        ({"volumes": ["a"]}, "spec.volumes[0]: expected an object"),
        ({"hostAliases": [{"hostnames": ["a"]}]}, "spec.hostAliases[0]: ip is required"),
        ({"containers": [{"name": {}, "image": "x"}]}, "name is required"),
        (
            {"securityContext": {"$patch": "merge"}},
            "spec.securityContext.$patch: expected replace",
        ),
        (
            {"volumes": [{"name": "a", "$patch": "merge"}]},
            "spec.volumes[0].$patch: expected replace",
        ),
        (
            {"containers": [{"name": "vllm", "env": [{"value": "x"}]}]},
            "spec.containers[0].env[0]: name is required",
        ),
        (
            {"volumes": [{"name": "cache", "$retainKeys": ["name"], "emptyDir": {}}]},
            "spec.volumes[0].$retainKeys: lacks 'emptyDir'",
        ),
        ({"securityContext": {"$retainKeys": 1}}, "expected a list of keys"),
    ],
)
def test_what_kubernetes_would_refuse_has_its_path(patch: dict[str, Any], want: str) -> None:
    with pytest.raises(MergeError) as refused:
        merge_pod_spec(BASE, patch)
    assert want in str(refused.value)


def test_there_are_patches_of_every_list_that_merges() -> None:
    patched = {name for patch in SPEC_PATCHES for name in patch}
    assert patched >= {"containers", "initContainers", "volumes", "imagePullSecrets"}
    assert {name for patch in CONTAINER_PATCHES for name in patch} >= {
        "env",
        "ports",
        "volumeMounts",
    }
