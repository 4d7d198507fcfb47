"""What is to be carried, whatever carries it."""

from dataclasses import dataclass

from tonnage.api.inference import InferenceDeploymentSpec, Scaling, Workload
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.model import EngineOptions


@dataclass(frozen=True, slots=True)
class Load:
    """A model, its workload, and how it is to be run: with the devices all that a size depends on.

    `replicas` are those that the user wrote, None for as many as the workload needs within
    `scaling`; `allow` are the compatibility rules that the user sets aside.
    """

    checkpoint: Checkpoint
    workload: Workload
    options: EngineOptions
    replicas: int | None
    scaling: Scaling
    allow: tuple[str, ...]

    @property
    def request_tokens(self) -> int:
        """Prompt and answer of a typical request."""
        return self.workload.input_tokens + self.workload.output_tokens

    def share(self, replicas: int) -> int:
        """Requests at once that fall to each of so many replicas, at least to one."""
        return -(-self.workload.concurrency // max(1, replicas))


def load_of(spec: InferenceDeploymentSpec, checkpoint: Checkpoint, options: EngineOptions) -> Load:
    """What a spec asks to be carried."""
    return Load(
        checkpoint=checkpoint,
        workload=spec.workload,
        options=options,
        replicas=spec.replicas,
        scaling=spec.scaling,
        allow=tuple(spec.placement.allow),
    )
