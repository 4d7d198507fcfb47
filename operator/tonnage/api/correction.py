"""One entry of the ConfigMap `tonnage-corrections`: a memory correction for a model."""

from datetime import date
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from tonnage.api.schema import ApiModel

_MAX_BYTES = 2**40
"""More memory than any device has."""

Identifier = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][-A-Za-z0-9._/]*$", max_length=120)
]
ParallelSize = Annotated[int, Field(ge=1, le=1024)]


class CorrectionEntry(ApiModel):
    """Measured memory of one GPU beyond the calculation, and the starts that it applies to."""

    model: Identifier
    """Model: architecture, layers, hidden size and parameters, for example
    LlamaForCausalLM-80x8192-70.6B."""
    weights: Identifier
    """Quantization of the weights, or their data type without quantization."""
    kv_cache: Identifier
    """Data type of the KV cache, as in spec.kvCacheDtype."""
    vllm_version: Identifier
    """vLLM release, for example 0.32.0."""
    accelerator: Identifier
    """Accelerator ID."""
    tensor_parallel_size: ParallelSize = 1
    """Tensor parallel size. Default: 1."""
    pipeline_parallel_size: ParallelSize = 1
    """Pipeline parallel size. Default: 1."""
    extra_bytes: Annotated[int, Field(ge=-_MAX_BYTES, le=_MAX_BYTES)]
    """Bytes on one GPU beyond the calculation, negative for less."""
    origin: Literal["Measurement", "Failure", "Person"] = "Person"
    """Measurement: the KV cache that vLLM reported. Failure: a start that ran out of memory.
    Person: set by a user; the operator never changes it. Default: Person."""
    learnt_of: Annotated[str, StringConstraints(max_length=320)] | None = None
    """Source of the correction, as namespace/name of the InferenceDeployment. The correction
    applies in that namespace; without this field, or with origin Person, in all namespaces.
    Default: none."""
    learnt_on: date | None = None
    """Date of the correction, for example 2026-11-22. Default: none."""
