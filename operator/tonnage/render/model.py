"""What rendering is asked for, besides the spec and the place that was chosen."""

from dataclasses import dataclass
from enum import StrEnum

from tonnage.api.shard import UNNAMED_SHARD, Shard
from tonnage.api.workload import Context


@dataclass(frozen=True, slots=True)
class Owner:
    """The InferenceDeployment that the children belong to. With its uid, a child of an object that
    was deleted and made anew under the same name is not taken for one of the new object's.
    `queue` is the Kueue queue that its label names, `context` which requests it is for where those
    of its model are told apart, `shard` whose operator it is for."""

    namespace: str
    name: str
    uid: str
    queue: str | None = None
    context: Context | None = None
    shard: Shard = UNNAMED_SHARD


class SurgeMode(StrEnum):
    """How pods are replaced when their template changes."""

    SURGE = "Surge"
    """The new pod starts first: needs spare GPUs, drops no replica."""

    ONE_BY_ONE = "OneByOne"
    """One old pod goes first and frees its GPUs: never waits for a GPU that does not come."""

    ALL_AT_ONCE = "AllAtOnce"
    """All old pods go first: for pods that need more GPUs than one old pod frees."""


@dataclass(frozen=True, slots=True)
class RenderSettings:
    """What the operator is told once for all objects. `hf_endpoint` is the URL of a Hugging Face
    Hub or mirror that the pods load models from, None for the public one."""

    hf_endpoint: str | None = None
