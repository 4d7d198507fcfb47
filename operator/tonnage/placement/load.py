"""What is to be carried, whatever carries it."""

from dataclasses import dataclass

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.workload import Workload
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.corrections import UNCORRECTED, Corrections
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.placement.adjustments import EngineAdjustments, Tried


@dataclass(frozen=True, slots=True)
class Demanded:
    """Replicas that the measured load asks for, of which each generates so many tokens a second at
    its fullest by the estimate; None where that is not known, and any replica counts alike."""

    replicas: int
    tokens_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class FullReplica:
    """One replica that holds as many typical requests as it may: how many those are, and how many
    vLLM schedules whatever their size. By the estimate, None where figures lack: what it generates,
    and by how much of the time between two tokens of a lone request each further one adds to it."""

    requests_at_once: int
    max_num_seqs: int
    tokens_per_second: float | None
    growth: float | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """A model, its workload, and how it is to be run: with the devices all that a size depends on.

    `replicas` are those that the user wrote, None for as many as the workload needs within the
    bounds; `allow` are the compatibility rules that the user sets aside. `corrections` are what
    starts of this very model have taught, `tried` the object's own starts that died of memory,
    `kept` the split and the adjustments that its replicas run with now.
    `follows_load`: the number is to follow the measured load; `demanded` is what it asks for, and
    takes the place of the workload's concurrency, once it is measured.
    """

    checkpoint: Checkpoint
    workload: Workload
    options: EngineOptions
    replicas: int | None
    min_replicas: int
    max_replicas: int
    follows_load: bool
    allow: tuple[str, ...]
    corrections: Corrections = UNCORRECTED
    tried: tuple[Tried, ...] = ()
    demanded: Demanded | None = None
    kept: tuple[Parallelism, EngineAdjustments] | None = None

    @property
    def request_tokens(self) -> int:
        """Prompt and answer of a typical request."""
        return self.workload.input_tokens + self.workload.output_tokens

    def adjustments_now(self, parallelism: Parallelism) -> EngineAdjustments | None:
        """Those that replicas of this split run with now, None where none runs."""
        return self.kept[1] if self.kept and self.kept[0] == parallelism else None

    def share(self, replicas: int) -> int:
        """Requests at once that fall to each of so many replicas, at least to one."""
        return -(-self.workload.concurrency // max(1, replicas))


def load_of(
    spec: InferenceDeploymentSpec,
    checkpoint: Checkpoint,
    options: EngineOptions,
    corrections: Corrections = UNCORRECTED,
    tried: tuple[Tried, ...] = (),
    demanded: Demanded | None = None,
) -> Load:
    """What a spec asks to be carried."""
    return Load(
        checkpoint=checkpoint,
        workload=spec.workload,
        options=options,
        replicas=spec.replicas,
        min_replicas=spec.scaling.min_replicas,
        max_replicas=spec.scaling.max_replicas,
        follows_load=spec.scaling.targets is not None,
        allow=tuple(spec.placement.allow),
        corrections=corrections,
        tried=tried,
        demanded=demanded,
    )
