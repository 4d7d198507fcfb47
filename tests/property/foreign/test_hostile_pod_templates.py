"""A podTemplate of any content is refused by name of the field, or rendered.

The schema keeps unknown fields of it, so the API server checks nothing of what is inside.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.golden.render.inputs import make_deployment, make_option, make_spec
from tonnage.api.parse import InvalidSpecError
from tonnage.engines.errors import RenderError
from tonnage.engines.inputs import RenderSettings
from tonnage.workloads.pod.pool_check import explain_templates
from tonnage.workloads.pod.template import check_template

MOUNT = {"name": "v", "mountPath": "/v", "subPath": "x"}
TERM = {
    "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}],
    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}],
}
REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}}
VLLM = {
    "name": "vllm",
    "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
    "volumeMounts": [MOUNT],
    "securityContext": {"capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "Localhost"}},
    "startupProbe": {"failureThreshold": 3, "httpGet": {"port": "http", "path": "/"}},
    "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
}
PROXY = {
    "name": "proxy",
    "image": "i",
    "env": [{"name": "A", "value": "b", "valueFrom": None}],
    "ports": [{"name": "x", "containerPort": 9}],
    "resources": {"limits": {"cpu": "1"}},
    "volumeMounts": [MOUNT],
}
FETCH = {
    "name": "fetch",
    "image": "i",
    "restartPolicy": "Always",
    "securityContext": {"capabilities": {"add": ["KILL"]}},
}
SPREAD = {"topologyKey": "z", "maxSkew": 1, "labelSelector": {"matchLabels": {"a": "b"}}}
POD_SPEC = {
    "affinity": {"nodeAffinity": REQUIRED},
    "containers": [VLLM, PROXY],
    "initContainers": [FETCH],
    "volumes": [
        {"name": "v", "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": "p", "projected": {"sources": [{"secret": {"name": "s"}}]}},
        {"name": "cache", "emptyDir": {"sizeLimit": "1Gi"}},
    ],
    "securityContext": {
        "runAsUser": None,
        "sysctls": [{"name": "kernel.shm_rmid_forced", "value": "0"}],
        "seLinuxOptions": {"type": "container_t"},
    },
    "topologySpreadConstraints": [SPREAD],
    "imagePullSecrets": [{"name": "x"}],
    "terminationGracePeriodSeconds": 600,
}
TEMPLATE = {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": POD_SPEC}
VALUES = (
    *(None, -1, 1.5, True, "", "$patch", [], [None], ["a"], [[]], {}, {"a": None}),
    *({"$patch": "delete"}, {"$patch": 7}, {"$retainKeys": 3}, {"$retainKeys": ["a"]}),
    *({"name": []}, [{"name": {}}], [{"name": "vllm"}], [{"$patch": "replace"}]),
    *({"requests": 5}, {"requests": {"cpu": []}}, [{"mountPath": 3, "name": "v"}]),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    match value:
        case dict():
            items = list(value.items())
        case list():
            items = list(enumerate(value))
        case _:
            return
    for key, each in items:
        yield from places(each, (*path, key))


def with_value(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = with_value(value[path[0]], path[1:], new)
    return copy


def outcome(of_user: Any, of_pool: Any) -> str:
    try:
        spec = make_spec(podTemplate=of_user)
        check_template(spec)
        declared = {"nodeSelector": {"a": "b"}, "podTemplate": of_pool}
        option = make_option("h100-sxm-80gb", declared=declared)
    except (RenderError, InvalidSpecError) as error:
        return "refused" if "odTemplate" in str(error) else f"without the field: {error}"
    if explain_templates(spec, option.pool, RenderSettings()) is not None:
        return "no such pool"
    make_deployment(spec, option)
    return "rendered"


def test_the_template_itself_is_rendered() -> None:
    assert outcome(TEMPLATE, {}) == outcome({}, TEMPLATE) == "rendered"


@pytest.mark.parametrize("whose", ["user", "pool"])
def test_any_value_in_any_place_is_refused_or_rendered(whose: str) -> None:
    templates = [with_value(TEMPLATE, path, new) for path in places(TEMPLATE) for new in VALUES]
    seen = {outcome(one, {}) if whose == "user" else outcome({}, one) for one in templates}
    assert seen - {"no such pool"} == {"refused", "rendered"}
