"""When the operator applies a child, and when it already is what was rendered."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tonnage.api.names import ANNOTATION_RENDERED
from tonnage.api.text import digest
from tonnage.kube.kinds import DEPLOYMENTS
from tonnage.reconcile.actions import Apply, apply_if_changed, stamped
from tonnage.reconcile.observation.children import read_child

RENDERED: dict[str, Any] = {
    "metadata": {"name": "llama", "namespace": "chat", "labels": {"app": "vllm"}},
    "spec": {
        "replicas": 2,
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "vllm",
                        "image": "vllm:1",
                        "args": ["--a", "--b"],
                        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                        "volumeMounts": [
                            {"name": "data", "mountPath": "/a", "subPath": "a"},
                            {"name": "data", "mountPath": "/b", "subPath": "b"},
                        ],
                    }
                ],
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
            }
        },
    },
}


def live(change: Callable[[dict[str, Any]], object] = lambda body: None) -> dict[str, Any]:
    """The child as the API server has it after the apply, with defaults, then changed."""
    (apply,) = apply_if_changed(DEPLOYMENTS, stamped(RENDERED), None)
    body = copy.deepcopy(apply.body)
    body["metadata"] |= {"uid": "u1", "resourceVersion": "7", "generation": 1}
    body["spec"]["progressDeadlineSeconds"] = 600
    container(body)["terminationMessagePath"] = "/dev/termination-log"
    body["status"] = {"replicas": 2}
    change(body)
    return body


def pod_spec(body: dict[str, Any]) -> Any:
    return body["spec"]["template"]["spec"]


def container(body: dict[str, Any]) -> Any:
    return pod_spec(body)["containers"][0]


def is_applied(body: dict[str, Any], rendered: dict[str, Any] = RENDERED) -> bool:
    return apply_if_changed(DEPLOYMENTS, stamped(rendered), read_child(body)) != ()


def test_a_missing_child_is_applied_as_new() -> None:
    (action,) = apply_if_changed(DEPLOYMENTS, stamped(RENDERED), None)
    assert isinstance(action, Apply)
    assert not action.exists
    assert str(action) == "apply Deployment llama"
    assert action.body["metadata"]["annotations"] == {ANNOTATION_RENDERED: digest(RENDERED)}


def test_an_owned_child_is_applied_as_existing() -> None:
    (action,) = apply_if_changed(
        DEPLOYMENTS, stamped(RENDERED), read_child(live(lambda body: body["spec"].pop("replicas")))
    )
    assert action.exists


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda body: None, id="nothing"),
        pytest.param(
            lambda body: pod_spec(body)["containers"].insert(0, {"name": "mesh", "image": "m:1"}),
            id="a sidecar before the server",
        ),
        pytest.param(
            lambda body: container(body)["env"].insert(0, {"name": "MESH", "value": "1"}),
            id="a variable before the rendered ones",
        ),
        pytest.param(lambda body: container(body)["env"].reverse(), id="variables in other order"),
        pytest.param(
            lambda body: container(body)["volumeMounts"].reverse(), id="mounts in other order"
        ),
        pytest.param(
            lambda body: container(body)["volumeMounts"].append(
                {"name": "data", "mountPath": "/c"}
            ),
            id="one mount more of a rendered volume",
        ),
        pytest.param(
            lambda body: body["metadata"]["labels"].update(team="a"), id="a label of another client"
        ),
        pytest.param(
            lambda body: body["metadata"]["annotations"].update({"k": "v"}),
            id="an annotation of another client",
        ),
        pytest.param(lambda body: body["status"].update(replicas=0), id="the status"),
    ],
)
def test_fields_that_other_clients_add_are_kept(change: Any) -> None:
    assert not is_applied(live(change))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda body: container(body).update(image="other:1"), id="image"),
        pytest.param(lambda body: container(body).pop("image"), id="image gone"),
        pytest.param(lambda body: container(body)["args"].append("--c"), id="an argument more"),
        pytest.param(lambda body: container(body)["args"].reverse(), id="arguments in other order"),
        pytest.param(lambda body: container(body)["env"].pop(0), id="a variable gone"),
        pytest.param(
            lambda body: container(body)["env"][0].update(value="9"), id="a variable's value"
        ),
        pytest.param(lambda body: container(body)["volumeMounts"].pop(), id="a mount gone"),
        pytest.param(
            lambda body: container(body)["volumeMounts"][0].update(subPath="z"), id="a mount"
        ),
        pytest.param(
            lambda body: pod_spec(body)["tolerations"].insert(0, {"key": "x"}),
            id="a list without names is compared as a whole",
        ),
        pytest.param(lambda body: body["spec"].update(replicas=0), id="replicas"),
        pytest.param(lambda body: body["metadata"]["labels"].clear(), id="labels gone"),
        pytest.param(
            lambda body: body["metadata"]["annotations"].update({ANNOTATION_RENDERED: "x"}),
            id="the digest",
        ),
        pytest.param(lambda body: body["metadata"].pop("annotations"), id="annotations gone"),
        pytest.param(lambda body: body["spec"].update(template=None), id="no template"),
        pytest.param(lambda body: pod_spec(body).update(containers="x"), id="not a list"),
    ],
)
def test_foreign_changes_of_rendered_fields_are_repaired(change: Any) -> None:
    assert is_applied(live(change))


def test_a_field_that_is_rendered_no_longer_is_removed() -> None:
    without = copy.deepcopy(RENDERED)
    container(without)["env"].pop()
    del pod_spec(without)["tolerations"]
    assert is_applied(live(), without)


def test_the_digest_depends_on_values_and_not_on_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": [1, 2]}) == digest({"b": [1, 2], "a": 1})
    assert digest({"a": [1, 2]}) != digest({"a": [2, 1]})


def test_rendering_is_not_changed_by_stamping_it() -> None:
    before = copy.deepcopy(RENDERED)
    apply_if_changed(DEPLOYMENTS, stamped(RENDERED), None)
    assert before == RENDERED
