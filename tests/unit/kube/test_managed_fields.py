"""Whether an object still is what the operator applied, by the fields that it owns."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tonnage.kube.managed_fields import has_applied, own_fields

APPLIED: dict[str, Any] = {
    "spec": {
        "replicas": 2,
        "containers": [
            {
                "name": "vllm",
                "image": "vllm:1",
                "args": ["--a"],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "ports": [{"containerPort": 8000}],
                "volumeMounts": [
                    {"name": "data", "mountPath": "/a"},
                    {"name": "data", "mountPath": "/b"},
                ],
            }
        ],
        "tolerations": [{"key": "gpu"}],
    },
}


def item(**fields: Any) -> dict[str, Any]:
    return {".": {}, **{f"f:{name}": inside for name, inside in fields.items()}}


def owned() -> Any:
    """The fields of the apply, as the API server writes them."""
    container = item(
        name={},
        image={},
        args={},
        env={
            'k:{"name":"A"}': item(name={}, value={}),
            'k:{"name":"B"}': item(name={}, value={}),
        },
        ports={'k:{"containerPort":8000,"protocol":"TCP"}': item(containerPort={})},
        volumeMounts={
            'k:{"mountPath":"/a"}': item(name={}, mountPath={}),
            'k:{"mountPath":"/b"}': item(name={}, mountPath={}),
        },
    )
    return {
        "f:spec": {
            "f:replicas": {},
            "f:containers": {'k:{"name":"vllm"}': container},
            "f:tolerations": {},
        }
    }


def vllm_of(spec: dict[str, Any]) -> Any:
    return next(one for one in spec["containers"] if one["name"] == "vllm")


def use_mirror(spec: dict[str, Any]) -> None:
    vllm_of(spec)["image"] = "mirror/vllm:1"


def add_toleration(spec: dict[str, Any]) -> None:
    spec["tolerations"].append({"key": "spot"})


def drop_mounts(spec: dict[str, Any]) -> None:
    del vllm_of(spec)["volumeMounts"]


def drop_container(spec: dict[str, Any]) -> None:
    spec["containers"].clear()


def change_second_variable(spec: dict[str, Any]) -> None:
    vllm_of(spec)["env"].insert(0, {"name": "C", "value": "3"})
    vllm_of(spec)["env"][2]["value"] = "x"


CHANGES: dict[str, Callable[[dict[str, Any]], None]] = {
    "the image": use_mirror,
    "a toleration more": add_toleration,
    "no mounts": drop_mounts,
    "no container": drop_container,
    "a variable": change_second_variable,
}


def changed(change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    live = copy.deepcopy(APPLIED)
    change(live["spec"])
    return live


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_changed_without_an_owner_was_admission(change: Any) -> None:
    assert has_applied(changed(change), APPLIED, owned())
    assert not has_applied(changed(change), APPLIED, None)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (use_mirror, ("f:image",)),
        (change_second_variable, ("f:env", 'k:{"name":"B"}', "f:value")),
        (change_second_variable, ("f:env", 'k:{"name":"B"}')),
        (drop_mounts, ("f:volumeMounts",)),
        (drop_mounts, ("f:volumeMounts", 'k:{"mountPath":"/b"}')),
    ],
)
def test_what_another_client_owns_now_was_its_change(change: Any, place: tuple[str, ...]) -> None:
    fields = owned()
    inside = fields["f:spec"]["f:containers"]['k:{"name":"vllm"}']
    for step in place[:-1]:
        inside = inside[step]
    del inside[place[-1]]
    assert not has_applied(changed(change), APPLIED, fields)
    assert has_applied(APPLIED, APPLIED, fields), "an equal value is no change of any owner"


@pytest.mark.parametrize("place", ["f:containers", "f:tolerations"])
def test_an_atomic_list_or_a_container_of_another_client_is_its_change(place: str) -> None:
    fields = owned()
    del fields["f:spec"][place]
    change = add_toleration if place == "f:tolerations" else use_mirror
    assert not has_applied(changed(change), APPLIED, fields)


def test_only_applies_of_the_operator_itself_count() -> None:
    entry = {"manager": "tonnage", "operation": "Apply", "fieldsV1": owned()}
    others = ({"manager": "kubectl"}, {"operation": "Update"}, {"subresource": "scale"})
    managed = [{**entry, "fieldsV1": {"f:spec": {}}, **other} for other in others]
    assert own_fields({"metadata": {"managedFields": [*managed, entry]}}) == owned()
    assert own_fields({"metadata": {"managedFields": managed}}) is None
    assert own_fields({"metadata": {"managedFields": [{**entry, "fieldsV1": {}}]}}) is None
    assert own_fields({"metadata": {}}) is None
