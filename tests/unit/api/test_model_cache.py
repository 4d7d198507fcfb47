"""The cache of a model in the spec: the claim, and the field that each error names."""

from typing import Any

import pytest

from tonnage.api.parse import InvalidSpecError, parse_spec

HUB = {"huggingFace": {"repo": "acme/llama"}}
INLINE = {"inline": {"config": {}}}
IMAGE = {"reference": "models/llama:v1"}
CLAIM = {"persistentVolumeClaim": {"claimName": "models"}}


def spec_with(cache: object, source: dict[str, Any] | None = None) -> dict[str, Any]:
    model = {"source": source or HUB, "cache": cache}
    return {"model": model, "workload": {"maxModelLen": 4096}}


def test_the_claim_of_the_cache() -> None:
    assert parse_spec(spec_with(CLAIM)).model.cache_claim == "models"
    assert parse_spec(spec_with(None)).model.cache_claim is None


@pytest.mark.parametrize(
    ("cache", "is_on_node_disk", "keeps_commit"),
    [
        (None, False, False),
        (CLAIM, False, True),
        ({"image": IMAGE}, False, False),
        ({"nodeDisk": {}}, True, True),
    ],
)
def test_where_the_files_are_kept_and_whether_their_commit_is(
    cache: object, is_on_node_disk: bool, keeps_commit: bool
) -> None:
    model = parse_spec(spec_with(cache)).model
    assert (model.is_on_node_disk, model.keeps_commit) == (is_on_node_disk, keeps_commit)


@pytest.mark.parametrize(
    ("cache", "source", "want"),
    [
        (CLAIM, INLINE, "spec.model: cache requires source.huggingFace"),
        ({}, HUB, "spec.model.cache: set exactly one of persistentVolumeClaim, image, nodeDisk"),
        ({"persistentVolumeClaim": {}}, HUB, "spec.model.cache.persistentVolumeClaim.claimName"),
        ({"persistentVolumeClaim": {"claimName": "A"}}, HUB, "persistentVolumeClaim.claimName"),
        ({"persistentVolumeClaim": {"claimName": 5}}, HUB, "persistentVolumeClaim.claimName"),
        ({"hostPath": {"path": "/"}}, HUB, "spec.model.cache.hostPath"),
        ({"image": {}}, HUB, "spec.model.cache.image.reference"),
        ({"image": {"reference": "a b"}}, HUB, "spec.model.cache.image.reference"),
        ({"image": {"reference": "$(HF_TOKEN)"}}, HUB, "spec.model.cache.image.reference"),
        ({"image": IMAGE, "pullPolicy": "Always"}, HUB, "spec.model.cache.pullPolicy"),
        ({"image": IMAGE | {"pullPolicy": "Often"}}, HUB, "spec.model.cache.image.pullPolicy"),
        ({"image": IMAGE} | CLAIM, HUB, "spec.model.cache: set exactly one of"),
        ({"image": IMAGE}, INLINE, "spec.model: cache requires source.huggingFace"),
        ({"nodeDisk": {"path": "/etc"}}, HUB, "spec.model.cache.nodeDisk.path"),
        ({"nodeDisk": "/etc"}, HUB, "spec.model.cache.nodeDisk"),
        ({"nodeDisk": {}} | CLAIM, HUB, "spec.model.cache: set exactly one of"),
        ({"nodeDisk": {}}, INLINE, "spec.model: cache requires source.huggingFace"),
        ("models", HUB, "spec.model.cache"),
    ],
)
def test_a_wrong_cache_is_refused_with_the_field(
    cache: object, source: dict[str, Any], want: str
) -> None:
    with pytest.raises(InvalidSpecError) as error:
        parse_spec(spec_with(cache, source))
    assert want in str(error.value)
