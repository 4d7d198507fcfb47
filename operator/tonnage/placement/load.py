"""The load that replicas have to serve, whatever devices they run on."""

from dataclasses import dataclass

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.workload import Workload
from tonnage.catalog.catalog import Catalog
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.calibration.corrections import UNCORRECTED, Corrections
from tonnage.fit.engines.registry import memory_for, options_for
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.fit.options import for_parallelism
from tonnage.fit.questions.measured import served_by
from tonnage.fit.questions.question import MemoryModel
from tonnage.placement.adjustments import EngineAdjustments, FailedStart


@dataclass(frozen=True, slots=True)
class Demanded:
    """Replicas that the measured load demands. `tokens_per_second` is what a full one generates by
    the estimate; None where it is unknown, and all replicas count as equal."""

    replicas: int
    tokens_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class FullReplica:
    """A replica with as many concurrent typical requests as it may hold. `max_num_seqs` is what
    the engine schedules whatever their size. Estimates, None without data: `tokens_per_second`, and
    `growth`: how much each further request adds to the time between tokens, as a part of that of a
    lone request."""

    requests_at_once: int
    max_num_seqs: int
    tokens_per_second: float | None
    growth: float | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """A model, its workload and engine options: with the devices, everything a size depends on.

    `replicas` is the user's number, None for as many as the workload needs within the bounds;
    `allow` are the compatibility rules that the user overrides. `corrections` are calibrated from
    starts of this model, `tried` are the object's own starts that ran out of memory, `kept` are the
    parallelism and the adjustments that its replicas run with now. With `follows_load`, the number
    of replicas follows the measured load: once measured, `demanded` replaces the workload's
    concurrency. `memory` is that of the engine.
    """

    checkpoint: Checkpoint
    workload: Workload
    options: EngineOptions
    replicas: int | None
    min_replicas: int
    max_replicas: int
    follows_load: bool
    allow: tuple[str, ...]
    memory: MemoryModel
    corrections: Corrections = UNCORRECTED
    tried: tuple[FailedStart, ...] = ()
    demanded: Demanded | None = None
    kept: tuple[Parallelism, EngineAdjustments] | None = None

    @property
    def request_tokens(self) -> int:
        """Prompt and output tokens of a typical request."""
        return self.workload.input_tokens + self.workload.output_tokens

    def adjustments_now(self, parallelism: Parallelism) -> EngineAdjustments | None:
        """Those that replicas of this parallelism run with now, None where none runs."""
        return self.kept[1] if self.kept and self.kept[0] == parallelism else None

    def options_for(self, parallelism: Parallelism) -> EngineOptions:
        """The engine options of a replica with this parallelism."""
        return for_parallelism(self.options, parallelism)

    def share(self, replicas: int) -> int:
        """Concurrent requests per replica, rounded up; no replicas count as one."""
        return -(-self.workload.concurrency // max(1, replicas))


def load_of(
    spec: InferenceDeploymentSpec,
    checkpoint: Checkpoint,
    catalog: Catalog,
    corrections: Corrections = UNCORRECTED,
    tried: tuple[FailedStart, ...] = (),
    demanded: Demanded | None = None,
) -> Load:
    """Return the load that a spec requests, with those of the corrections that apply to its model.

    Raises fit.options.InvalidOptionError for invalid engine settings.
    """
    options, memory = options_for(spec, catalog), memory_for(spec)
    return Load(
        checkpoint=checkpoint,
        workload=spec.workload,
        options=options,
        replicas=spec.replicas,
        min_replicas=spec.scaling.min_replicas,
        max_replicas=spec.scaling.max_replicas,
        follows_load=spec.scaling.targets is not None,
        allow=tuple(spec.placement.allow),
        memory=memory,
        corrections=corrections.of(served_by(memory, checkpoint.shape, options, catalog)),
        tried=tried,
        demanded=demanded,
    )
