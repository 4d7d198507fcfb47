"""The LoRA adapters that a pod lists, and the calls that change them.

The list comes from a user's image, so it is untrusted: an invalid one has no adapters, and none of
its text goes into a problem.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel, Field, ValidationError

from tonnage.telemetry.pods import ServingPod


class _Model(BaseModel, strict=True):
    """An entry of /v1/models: adapters have a parent, and their root is what they were loaded from.

    Source: vLLM 0.32.0 entrypoints/openai/models/protocol.py ModelCard; SGLang 0.5.23
    srt/entrypoints/http_server.py available_models.
    """

    id: str = Field(max_length=512)
    root: str | None = Field(default=None, max_length=4096)
    parent: str | None = Field(default=None, max_length=512)


class _Models(BaseModel, strict=True):
    data: list[_Model] = Field(max_length=4096)


@dataclass(frozen=True, slots=True)
class ServedAdapters:
    """What a pod serves: for each adapter what it was loaded from, by name; None where the pod gave
    no valid answer, for `problem`. `failed` says why the last call for an adapter failed."""

    adapters: Mapping[str, str] | None
    problem: str | None = None
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AdapterCall:
    """Load adapter `name` from `source`, or unload it where that is None."""

    name: str
    source: str | None = None


@dataclass(frozen=True, slots=True)
class PodCalls:
    """Calls to one pod, in this order; it has to serve `model`."""

    pod: ServingPod
    model: str
    calls: tuple[AdapterCall, ...]


def read_models(body: bytes, model: str) -> ServedAdapters:
    """Read the adapters from an answer of /v1/models. One of a server that serves another model, or
    that is no valid list, has none."""
    try:
        models = _Models.model_validate_json(body).data
    except ValidationError:
        return ServedAdapters(None, "gives no valid list of models on /v1/models")
    if model not in {each.id for each in models if each.parent is None}:
        return ServedAdapters(None, f"does not serve {model}")
    return ServedAdapters({each.id: each.root or "" for each in models if each.parent is not None})
