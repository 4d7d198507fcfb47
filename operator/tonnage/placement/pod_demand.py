"""What the pods of an option request, in addition to the GPUs that placement itself chooses."""

from dataclasses import dataclass

from tonnage.fleet.resources import NOTHING, Resources


@dataclass(frozen=True, slots=True)
class PodDemand:
    """CPU, memory and ephemeral storage that one replica requests."""

    others: Resources = NOTHING
