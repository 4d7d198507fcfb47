"""Adapters in the spec: defaults, and the field that each error names."""

from typing import Any

import pytest

from tonnage.api.model import Lora
from tonnage.api.parse import InvalidSpecError, parse_spec

HUB = {"huggingFace": {"repo": "acme/sql-lora"}}


def adapter(name: str = "sql", **fields: Any) -> dict[str, Any]:
    return {"name": name, "source": HUB, **fields}


def parse(lora: dict[str, Any], name: str = "llama") -> Lora:
    spec = parse_spec(
        {
            "model": {"name": name, "source": {"huggingFace": {"repo": "acme/llama"}}},
            "workload": {"maxModelLen": 4096},
            "lora": lora,
        }
    )
    assert spec.lora is not None
    return spec.lora


@pytest.mark.parametrize(
    ("lora", "want_slots", "want_host_slots"),
    [
        ({}, 1, 1),
        ({"adapters": [adapter("a"), adapter("b")]}, 2, 2),
        ({"adapters": [adapter(f"a{index}") for index in range(6)]}, 4, 6),
        ({"maxLoras": 8, "adapters": [adapter()]}, 8, 8),
        ({"maxLoras": 2, "maxCpuLoras": 32}, 2, 32),
    ],
)
def test_slots_follow_from_the_adapters(
    lora: dict[str, Any], want_slots: int, want_host_slots: int
) -> None:
    parsed = parse(lora)
    assert (parsed.slots, parsed.host_slots) == (want_slots, want_host_slots)


@pytest.mark.parametrize(
    ("lora", "want"),
    [
        ({"adapters": [adapter("-x")]}, "spec.lora.adapters[0].name: "),
        ({"adapters": [{"name": "a", "source": {}}]}, "spec.lora.adapters[0].source: set exactly"),
        ({"adapters": [adapter(rank=0)]}, "spec.lora.adapters[0].rank: "),
        ({"adapters": [adapter(), adapter()]}, "adapters[1].name: sql is the name of two"),
        ({"adapters": [adapter("llama")]}, "lora.adapters[0].name: llama is the name of the model"),
        ({"adapters": [adapter(rank=64)], "maxRank": 32}, "adapters[0].rank 64 is above maxRank"),
        ({"maxLoras": 0}, "spec.lora.maxLoras: "),
        ({"maxLoras": 4, "maxCpuLoras": 2}, "maxCpuLoras 2 is below maxLoras 4"),
        ({"maxRank": "16"}, "spec.lora.maxRank: "),
        ({"targetModules": ["--no"]}, "spec.lora.targetModules[0]: "),
        ({"fullySharded": "yes"}, "spec.lora.fullySharded: "),
        (
            {"adapters": [{"name": "a", "source": {"persistentVolumeClaim": {
                "claimName": "c", "path": "../x"}}}]},
            "spec.lora.adapters[0].source.persistentVolumeClaim.path: ",
        ),
    ],
)  # fmt: skip
def test_an_invalid_field_is_named(lora: dict[str, Any], want: str) -> None:
    with pytest.raises(InvalidSpecError) as refused:
        parse(lora)
    assert want in str(refused.value)


LIVE = {"updates": "Live", "maxRank": 16, "maxCpuLoras": 2}
REPO = {"repo": "acme/sql-lora"}
SECRET = {"tokenSecretRef": {"name": "hf"}}


@pytest.mark.parametrize(
    ("lora", "want_slots", "want_host_slots"),
    [(LIVE, 2, 2), ({**LIVE, "maxCpuLoras": 32}, 4, 32), ({**LIVE, "maxLoras": 1}, 1, 2)],
)
def test_with_live_updates_no_size_follows_from_the_adapters(
    lora: dict[str, Any], want_slots: int, want_host_slots: int
) -> None:
    for adapters in ([], [adapter("a")]):
        parsed = parse({**lora, "adapters": adapters})
        assert (parsed.slots, parsed.host_slots) == (want_slots, want_host_slots)


@pytest.mark.parametrize(
    ("lora", "want"),
    [
        ({**LIVE, "updates": "Sometimes"}, "spec.lora.updates: "),
        ({**LIVE, "maxRank": None}, "updates is Live, which needs maxRank"),
        ({**LIVE, "maxCpuLoras": None}, "updates is Live, which needs maxCpuLoras"),
        (
            {**LIVE, "adapters": [adapter(name) for name in "abc"]},
            "maxCpuLoras 2 is below 3 adapters",
        ),
        (
            {**LIVE, "adapters": [adapter(source={"huggingFace": {**REPO, "revision": "v2"}})]},
            "adapters[0].source.huggingFace.revision v2: ",
        ),
        (
            {**LIVE, "adapters": [adapter(source={"huggingFace": {**REPO, **SECRET}})]},
            "lora.adapters[0].source.huggingFace.tokenSecretRef: ",
        ),
    ],
)  # fmt: skip
def test_what_live_updates_cannot_do_is_refused_with_the_field(
    lora: dict[str, Any], want: str
) -> None:
    with pytest.raises(InvalidSpecError) as refused:
        parse(lora)
    assert want in str(refused.value)


@pytest.mark.parametrize(
    ("model", "want"),
    [
        (
            {"source": {"persistentVolumeClaim": {
                "claimName": "models", "facts": {"inline": {"config": {}}}}}},
            "the model is on a volume, so its pods reach no Hub",
        ),
        (
            {"source": HUB, "cache": {"nodeDisk": {}}},
            "the model is in model.cache, so its pods reach no Hub",
        ),
        (
            {"source": HUB, "cache": {"persistentVolumeClaim": {"claimName": "cache"}}},
            "the model is in model.cache, so its pods reach no Hub",
        ),
    ],
)  # fmt: skip
def test_with_live_updates_pods_without_the_hub_take_no_adapters_from_it(
    model: dict[str, Any], want: str
) -> None:
    spec = {
        "model": {"name": "llama", **model},
        "workload": {"maxModelLen": 4096},
        "lora": {**LIVE, "adapters": [adapter()]},
    }
    with pytest.raises(InvalidSpecError, match=want):
        parse_spec(spec)
