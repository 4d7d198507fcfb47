"""The workload of a model: concurrent requests, their length, and latency targets."""

from enum import StrEnum
from typing import Annotated, Any, Final, Self

from pydantic import Field, model_validator

from tonnage.api.schema import STRICT_NUMBER, ApiModel, Duration, TokenCount

TYPICAL_INPUT_TOKENS: Final = 1000
TYPICAL_OUTPUT_TOKENS: Final = 200
"""The size of a typical request where the user states none."""


class Context(StrEnum):
    """The requests that an endpoint serves, by length."""

    SHORT = "short"
    LONG = "long"


class LatencyTargets(ApiModel):
    """Latency limits for a typical request, compared with estimates."""

    time_to_first_token: Duration | None = None
    """Maximum time from a request to its first token, for example 2s. Default: none."""
    time_per_output_token: Duration | None = None
    """Maximum time between two tokens of a request, for example 50ms. Default: none."""

    @property
    def are_set(self) -> bool:
        """Whether any target is set."""
        return self.time_to_first_token is not None or self.time_per_output_token is not None


class LongContext(ApiModel):
    """A separate endpoint for long requests."""

    above: TokenCount
    """Requests with more tokens than this, prompt and answer together, are long. The other replicas
    serve requests up to this length."""
    concurrency: Annotated[int, Field(ge=1, le=1_000_000), STRICT_NUMBER] | None = None
    """Concurrent long requests over all replicas, a part of `workload.concurrency`. Default: 1."""
    input_tokens: TokenCount | None = None
    """Prompt tokens of a typical long request. Default: the mean of `above` and `maxModelLen`,
    minus `outputTokens`."""
    output_tokens: TokenCount | None = None
    """Generated tokens of a typical long request. Default: `workload.outputTokens`."""
    latency_targets: LatencyTargets | None = None
    """Latency limits for a typical long request. Default: `workload.latencyTargets`."""
    replicas: Annotated[int, Field(ge=0, le=1000), STRICT_NUMBER] | None = None
    """Number of replicas for long requests. Default: computed from the workload, or 0 if
    `spec.replicas` is 0."""


class Workload(ApiModel):
    """Requests that the model has to serve. They determine the memory for the KV cache."""

    max_model_len: TokenCount
    """Maximum request length in tokens, prompt and answer together (vLLM's --max-model-len)."""
    concurrency: Annotated[int, Field(ge=1, le=1_000_000), STRICT_NUMBER] = 1
    """Concurrent requests over all replicas. Default: 1."""
    input_tokens: TokenCount = TYPICAL_INPUT_TOKENS
    """Prompt tokens of a typical request. Default: 1000."""
    output_tokens: TokenCount = TYPICAL_OUTPUT_TOKENS
    """Generated tokens of a typical request. Default: 200."""
    latency_targets: LatencyTargets = LatencyTargets()
    """Latency limits. Pools without an estimate within them are rejected. Default: none."""
    long_context: LongContext | None = None
    """Serves long requests with separate replicas and a separate Service. Default: the same
    replicas serve all requests."""

    @property
    def short_part(self) -> "Workload":
        """The workload of this InferenceDeployment, without long requests that have their own
        endpoint."""
        if self.long_context is None:
            return self
        changes = {
            "max_model_len": self.long_context.above,
            "concurrency": self.concurrency - _concurrency(self.long_context),
            "long_context": None,
        }
        return self.model_copy(update=changes)

    def long_part(self, long: LongContext) -> "Workload":
        """The workload of the endpoint for long requests."""
        typical_input, typical_output = self._typical_long(long)
        changes: dict[str, Any] = {
            "concurrency": _concurrency(long),
            "input_tokens": typical_input,
            "output_tokens": typical_output,
            "long_context": None,
        }
        if long.latency_targets is not None:
            changes["latency_targets"] = long.latency_targets
        return self.model_copy(update=changes)

    def _typical_long(self, long: LongContext) -> tuple[int, int]:
        """Prompt and answer tokens of a typical long request; 0 if the answer leaves no tokens for
        a prompt."""
        typical_output = long.output_tokens or self.output_tokens
        halfway = -(-(long.above + self.max_model_len) // 2)
        return long.input_tokens or max(0, halfway - typical_output), typical_output

    @model_validator(mode="after")
    def _check_long_context(self) -> Self:
        if self.long_context is not None:
            self._check_bounds(self.long_context)
            self._check_typical_requests(self.long_context)
        return self

    def _check_bounds(self, long: LongContext) -> None:
        if long.above >= self.max_model_len:
            raise ValueError(
                f"longContext.above {long.above} must be below maxModelLen {self.max_model_len}:"
                " no request would be long; lower above or raise maxModelLen"
            )
        if _concurrency(long) >= self.concurrency:
            raise ValueError(
                f"longContext.concurrency {_concurrency(long)} must be below concurrency"
                f" {self.concurrency}: no short request would remain; lower longContext.concurrency"
                " or raise concurrency"
            )

    def _check_typical_requests(self, long: LongContext) -> None:
        typical_short = self.input_tokens + self.output_tokens
        if typical_short > long.above:
            raise ValueError(
                f"longContext.above is {long.above}, and a typical request (inputTokens and"
                f" outputTokens) has {typical_short} tokens, so it would be long; raise above, or"
                " lower inputTokens or outputTokens"
            )
        typical_input, typical_output = self._typical_long(long)
        if typical_input == 0:
            raise ValueError(
                f"longContext.inputTokens is not set, and outputTokens {typical_output} leaves no"
                " tokens for a prompt; set inputTokens"
            )
        if not long.above < typical_input + typical_output <= self.max_model_len:
            raise ValueError(
                f"longContext.inputTokens {typical_input} and outputTokens {typical_output} of a"
                f" typical long request are together {typical_input + typical_output} tokens;"
                f" expected more than above ({long.above}) and at most maxModelLen"
                f" ({self.max_model_len})"
            )


def _concurrency(long: LongContext) -> int:
    return long.concurrency or 1
