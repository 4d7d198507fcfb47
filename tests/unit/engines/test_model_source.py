"""Where an engine gets the weights of its model from."""

from typing import Any

import pytest

from tests.support.in_memory.cluster import spec_of
from tonnage.api.parse import parse_spec
from tonnage.engines.medium import Medium
from tonnage.engines.model_source import medium_of


@pytest.mark.parametrize(
    ("source", "medium"),
    [
        ({"huggingFace": {"repo": "org/model"}}, Medium.HUB),
        ({"inline": {"config": {}}}, Medium.HUB),
        ({"inline": {"config": {}, "loadFrom": "/models/m"}}, Medium.PATH),
        ({"configMap": {"name": "m", "loadFrom": "s3://bucket/m"}}, Medium.OBJECT_STORE),
        (
            {
                "persistentVolumeClaim": {
                    "claimName": "weights",
                    "facts": {"inline": {"config": {}}},
                }
            },
            Medium.VOLUME,
        ),
    ],
)
def test_the_medium_follows_from_the_source(source: dict[str, Any], medium: Medium) -> None:
    assert medium_of(parse_spec(spec_of(model="llama-3.1-8b") | {"model": {"source": source}})) is (
        medium
    )


@pytest.mark.parametrize(
    ("cache", "medium"),
    [
        ({"persistentVolumeClaim": {"claimName": "weights"}}, Medium.VOLUME),
        ({"image": {"reference": "registry.local/llama:1"}}, Medium.IMAGE),
    ],
)
def test_the_medium_is_the_cache_where_there_is_one(cache: dict[str, Any], medium: Medium) -> None:
    model = {"source": {"huggingFace": {"repo": "meta-llama/Llama-3.1-8B"}}, "cache": cache}
    assert medium_of(parse_spec(spec_of(model="llama-3.1-8b") | {"model": model})) is medium
