"""InferenceDeployments as users write them, for journeys and the demo.

The configs are the memory-relevant keys of the published models' config.json.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from e2e.harness.rest import Json

_CONFIGS = Path(__file__).parent.parent / "tests" / "data" / "configs"

WEIGHTS_BYTES = {
    "llama-3.1-8b": 16_060_556_376,
    "llama-3.3-70b": 141_107_412_992,
    "llama-3.1-405b-fp8": 410_000_000_000,
    "deepseek-v3": 688_586_727_753,
}
"""Sizes of the weight files of the published checkpoints, in bytes."""


def inline_source(model: str) -> Json:
    """A model's facts inside the object; no Hub is asked."""
    config = json.loads((_CONFIGS / f"{model}.json").read_text("utf-8"))
    size = WEIGHTS_BYTES.get(model)
    return {"inline": {"config": config} | ({"weightsBytes": size} if size else {})}


OWN_IMAGE = "own/vllm:v0.32.0"
"""A custom image never adds a correction: what a start with it lacked says nothing about objects
of other tests."""


def inference(
    name: str,
    checkpoint: str = "llama-3.3-70b",
    *,
    max_model_len: int = 32768,
    behaviour: str | None = None,
    **spec: Any,
) -> Json:
    """An InferenceDeployment of one replica; `behaviour` is what its pods play on KWOK nodes."""
    template = {"template": {"metadata": {"labels": {"e2e.tonnage.dev/behaviour": behaviour}}}}
    own = {"engine": {"vllm": {"image": OWN_IMAGE}}} if behaviour == "out-of-memory" else {}
    return {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": name},
        "spec": {
            "model": {"source": inline_source(checkpoint)},
            "workload": {"maxModelLen": max_model_len, "concurrency": 8},
            "replicas": 1,
            **(template if behaviour else {}),
            **own,
            **spec,
        },
    }


def token_secret(name: str, token: str) -> Json:
    """A Secret with a Hub token, as `tokenSecretRef` names it."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "data": {"token": base64.b64encode(token.encode()).decode()},
    }
