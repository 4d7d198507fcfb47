"""Inputs of rendering other than the spec and the chosen placement."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tonnage.api.shard import UNNAMED_SHARD, Shard
from tonnage.api.workload import Context
from tonnage.engines.image_mirrors import Mirrors

BASELINE: Final = "baseline"
PRIVILEGED: Final = "privileged"
"""The Pod Security Standards that podTemplates of AcceleratorPools may have to meet."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The InferenceDeployment that the children belong to. Its uid distinguishes children of a
    deleted object from those of a new one of the same name. `queue` is the Kueue queue that its
    label names, `context` the requests that it serves where its model has endpoints by length,
    `shard` the shard of its operator."""

    namespace: str
    name: str
    uid: str
    queue: str | None = None
    context: Context | None = None
    shard: Shard = UNNAMED_SHARD


class SurgeMode(StrEnum):
    """How a Deployment replaces pods when their template changes."""

    SURGE = "Surge"
    """The new pod starts first: needs spare GPUs, loses no replica."""

    ONE_BY_ONE = "OneByOne"
    """One old pod ends first and frees its GPUs: needs no spare GPUs."""

    ALL_AT_ONCE = "AllAtOnce"
    """All old pods end first: for pods that need more GPUs than one old pod frees."""


@dataclass(frozen=True, slots=True)
class RenderSettings:
    """Settings of the operator for all objects. `hf_endpoint` is the URL of the Hugging Face Hub or
    mirror from which pods load models, None for the public Hub. `registry_mirrors` are registries
    from which pods take images instead. With `privileged_pools`, the podTemplate of an
    AcceleratorPool may break the Pod Security Standard "baseline"."""

    hf_endpoint: str | None = None
    registry_mirrors: Mirrors = ()
    privileged_pools: bool = False
