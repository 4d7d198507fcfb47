"""One entry of the ConfigMap `tonnage-corrections`: what was learnt about the memory of a start."""

from datetime import date
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from tonnage.api.schema import ApiModel

_LARGEST_BYTES = 2**40
"""More than any device has."""

Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][-A-Za-z0-9._/]*$", max_length=120)]
Degree = Annotated[int, Field(ge=1, le=1024)]


class CorrectionEntry(ApiModel):
    """Bytes of one GPU that a start took beyond the calculation, and what they were learnt of."""

    model: Word
    """The model by its config, for example LlamaForCausalLM-80x8192-70.6B: architecture, layers,
    hidden size, parameters."""
    weights: Word
    """How the weights are loaded: the quantization that was asked for or that the checkpoint has,
    else its element type."""
    kv_cache: Word
    """Element type of the KV cache, as spec.kvCacheDtype has it."""
    vllm_version: Word
    """Release of vLLM, for example 0.32.0."""
    accelerator: Word
    """Accelerator id of the catalogue."""
    tensor_parallel_size: Degree = 1
    """GPUs that the layers are split over. Default: 1."""
    pipeline_parallel_size: Degree = 1
    """Stages that the layers are cut into. Default: 1."""
    extra_bytes: Annotated[int, Field(ge=-_LARGEST_BYTES, le=_LARGEST_BYTES)]
    """Bytes of one GPU that the start took beyond the calculation, negative where it took less."""
    origin: Literal["Measurement", "Failure", "Person"] = "Person"
    """Measurement: from the KV cache that vLLM sized. Failure: from a start that lacked memory.
    Person: somebody wrote it, and the operator leaves it as it is. Default: Person."""
    learnt_of: Annotated[str, StringConstraints(max_length=320)] | None = None
    """Namespace and name of the InferenceDeployment that taught it. A lesson counts in that
    namespace; without this, and where the origin is Person, it counts in all. Default: nobody's."""
    learnt_on: date | None = None
    """The day, for example 2026-11-22. Default: not known."""
