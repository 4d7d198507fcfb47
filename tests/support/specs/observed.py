"""What a look may have found: an object of which nothing is there yet but what is given."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.observation import Observation

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def observed(spec: InferenceDeploymentSpec, **fields: Any) -> Observation:
    """The first generation of chat/llama, created on New Year; fields are those of Observation."""
    seen = Observation(
        key=Key("chat", "llama"),
        uid="u0",
        resource_version="1",
        generation=1,
        created=NEW_YEAR,
        spec=spec,
        model=None,
        previous_status={},
    )
    return replace(seen, **fields)
