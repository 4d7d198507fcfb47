"""Any valid spec is rendered as plain, deterministic JSON."""

import json
import re
from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden.render.inputs import OWNER, make_deployment, make_option, make_spec
from tonnage.engines.quantity import format_canonical, parse_quantity
from tonnage.workloads.pod.template import check_template
from tonnage.workloads.service import render_service

NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=12)
QUANTITIES = st.from_regex(r"[0-9]{1,6}(\.[0-9]{1,3})?(m|k|M|G|T|Ki|Mi|Gi|Ti)?", fullmatch=True)
RESOURCES = st.dictionaries(
    st.sampled_from(["cpu", "memory", "ephemeral-storage"]),
    st.tuples(QUANTITIES, QUANTITIES).map(lambda pair: sorted(pair, key=parse_quantity)),
).map(
    lambda pairs: {
        "requests": {name: low for name, (low, _) in pairs.items()},
        "limits": {name: high for name, (_, high) in pairs.items()},
    }
)

SOURCES = st.one_of(
    st.builds(
        lambda revision, token: {
            "huggingFace": {"repo": "a/b", "revision": revision, "tokenSecretRef": token}
        },
        st.sampled_from(["main", "v1", "6f6073b423013f6a7d4d9f39144961bfbfbc386b"]),
        st.none() | st.just({"name": "hf"}),
    ),
    st.builds(
        lambda path: {
            "persistentVolumeClaim": {
                "claimName": "c",
                "path": path,
                "facts": {"inline": {"config": {}}},
            }
        },
        st.sampled_from(["", "a", "a/b"]),
    ),
    st.builds(
        lambda load: {"inline": {"config": {}, "loadFrom": load}},
        st.none() | TEXT.filter(bool),
    ),
)
ENVIRONMENT = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("AB"), "value": TEXT}), max_size=64
)
VOLUMES = st.lists(
    st.fixed_dictionaries(
        {"name": NAMES.map(lambda name: f"v-{name}")},
        optional={
            "emptyDir": st.fixed_dictionaries(
                {}, optional={"sizeLimit": QUANTITIES, "medium": st.sampled_from(["", "Memory"])}
            )
        },
    ).map(lambda volume: volume if len(volume) > 1 else {**volume, "configMap": {"name": "c"}}),
    unique_by=lambda volume: volume["name"],
    max_size=3,
)


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    volumes = draw(VOLUMES)
    return {
        "model": {"name": draw(st.none() | TEXT.filter(bool)), "source": draw(SOURCES)},
        "workload": {"maxModelLen": draw(st.integers(1, 10**6))},
        "kvCacheDtype": draw(st.sampled_from(["auto", "fp8"])),
        "engine": {
            "vllm": {
                "version": draw(st.sampled_from([None, "v0.9.0", "v0.32.0", "v9.9.9"])),
                "image": draw(st.none() | st.just("me/vllm:1")),
                "extraArgs": draw(
                    st.lists(st.sampled_from(["--seed=1", "x y", "--api-key=b"]), max_size=64)
                ),
                "env": draw(ENVIRONMENT),
                "gpuMemoryUtilization": draw(st.none() | st.floats(0.01, 1)),
                "enforceEager": draw(st.booleans()),
            }
        },
        "template": {
            "metadata": {"labels": draw(st.dictionaries(NAMES, NAMES, max_size=3))},
            "spec": {
                "priorityClassName": draw(st.none() | NAMES),
                "resources": draw(RESOURCES),
                "volumes": volumes,
                "volumeMounts": [
                    {
                        "name": volume["name"],
                        "mountPath": f"/mnt/{volume['name']}",
                        "readOnly": draw(st.booleans()),
                    }
                    for volume in volumes
                ],
            },
        },
    }


OPTIONS = st.builds(
    make_option,
    st.sampled_from(["mi300x", "mi210", "h100-sxm-80gb", "gb200-192gb"]),
    tensor=st.sampled_from([1, 2, 4, 8]),
)


def assert_plain(value: Any, path: str = "") -> None:
    """JSON types only, and nothing that the API server drops: no null, no empty string."""
    if isinstance(value, dict):
        for key, inner in value.items():
            assert isinstance(key, str)
            assert_plain(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            assert_plain(inner, f"{path}[{index}]")
    else:
        assert isinstance(value, str | int | float | bool), f"{path}: {value!r}"
        assert value != "", path


@settings(deadline=None)
@given(specs(), OPTIONS)
def test_every_valid_spec_becomes_plain_json(raw: dict[str, Any], option: Any) -> None:
    spec = make_spec(**raw)
    check_template(spec)
    deployment = make_deployment(spec, option)
    assert_plain(deployment)
    assert_plain(render_service(OWNER))
    assert json.loads(json.dumps(deployment)) == deployment
    assert make_deployment(spec, option) == deployment


@settings(deadline=None)
@given(
    specs(),
    OPTIONS,
    st.integers(0, 1000),
    st.integers(1, 10**6),
    st.sampled_from(["LowestCost", "FewestGPUs", "HighestThroughput"]),
)
def test_the_template_does_not_depend_on_fields_that_need_no_restart(
    raw: dict[str, Any], option: Any, replicas: int, concurrency: int, policy: str
) -> None:
    other = {
        **raw,
        "replicas": replicas,
        "workload": {**raw["workload"], "concurrency": concurrency, "outputTokens": concurrency},
        "placement": {"policy": policy, "fallback": {"after": "1h"}},
    }
    first = make_deployment(make_spec(**raw), option)
    second = make_deployment(
        make_spec(**other), option, replicas=replicas, placement_digest="other"
    )
    assert first["spec"]["template"] == second["spec"]["template"]


@given(QUANTITIES)
def test_a_canonical_quantity_stays_as_it_is(text: str) -> None:
    once = format_canonical(text)
    assert re.fullmatch(r"[0-9]+(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?", once)
    if once[-1] not in "PE":
        assert format_canonical(once) == once
        assert 0 <= parse_quantity(once) - parse_quantity(text) < Fraction(1, 1000)
