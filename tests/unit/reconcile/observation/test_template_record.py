"""The record of a pod template in the annotations of its Deployment."""

import json

import pytest

from tonnage.api.names import ANNOTATION_POD_TEMPLATE, ANNOTATION_TEMPLATE
from tonnage.api.packed import pack_json
from tonnage.api.text import canonical_json
from tonnage.reconcile.observation.template_record import (
    RecordedDemand,
    TemplateRecord,
    TemplateSource,
    read_record,
)

TEMPLATE = {"metadata": {"labels": {"team": "été"}}, "spec": {"containers": [{"name": "vllm"}]}}
DIGESTS = [character * 16 for character in "abcd"]
RECORD = TemplateRecord(
    TemplateSource(*DIGESTS[:3], release="0.32.0"),
    RecordedDemand(DIGESTS[3], tokens=8192, replicas=2),
    TEMPLATE,
    name="named",
)


def annotations(text: str) -> dict[str, str]:
    """Those of the record, with this text as the template."""
    packed = pack_json(text)
    assert packed is not None
    own = {ANNOTATION_TEMPLATE: "named"}
    return {**own, **RECORD.annotations(), ANNOTATION_POD_TEMPLATE: packed}


def test_a_record_is_read_as_it_was_written() -> None:
    assert read_record(annotations(canonical_json(TEMPLATE))) == RECORD


@pytest.mark.parametrize(
    "text",
    [
        canonical_json({**TEMPLATE, "spec": {"containers": [{"name": "other"}]}}),
        json.dumps(TEMPLATE, indent=1),
        "{",
        "",
    ],
    ids=["another template", "other text", "no JSON", "nothing"],
)
def test_a_record_with_another_text_counts_as_absent(text: str) -> None:
    assert read_record(annotations(text)) is None
