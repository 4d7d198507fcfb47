"""What a model has to serve: how many requests at once, of which length, and how fast."""

from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from tonnage.api.schema import AS_A_NUMBER, ApiModel, Duration, TokenCount


class Context(StrEnum):
    """Which requests an endpoint is for, where those of a model are told apart by length."""

    SHORT = "short"
    LONG = "long"


class LatencyTargets(ApiModel):
    """What a typical request may take at most; estimates are held against it."""

    time_to_first_token: Duration | None = None
    """Longest time from the request to its first token, for example 2s. Default: none."""
    time_per_output_token: Duration | None = None
    """Longest time between two tokens of a request, for example 50ms. Default: none."""

    @property
    def are_set(self) -> bool:
        """Whether there is any target."""
        return self.time_to_first_token is not None or self.time_per_output_token is not None


class LongContext(ApiModel):
    """The requests that are served by an endpoint of their own, because they are long."""

    above: TokenCount
    """Requests of more tokens than this, prompt and answer together, are long. It is the longest
    request that the object itself serves."""
    concurrency: Annotated[int, Field(ge=1, le=1_000_000), AS_A_NUMBER] | None = None
    """Of `concurrency`, how many are long at once, over all replicas. Default: 1."""
    input_tokens: TokenCount | None = None
    """Prompt tokens of a typical long request. Default: with outputTokens it is halfway between
    `above` and `maxModelLen`."""
    output_tokens: TokenCount | None = None
    """Generated tokens of a typical long request. Default: those of any typical request."""
    latency_targets: LatencyTargets | None = None
    """Targets for a typical long request. Default: those of any typical request."""
    replicas: Annotated[int, Field(ge=0, le=1000), AS_A_NUMBER] | None = None
    """Copies of the model for long requests. Default: as many as they need; none while
    `spec.replicas` is 0."""


class Workload(ApiModel):
    """What the model has to serve. It decides the memory for the KV cache."""

    max_model_len: TokenCount
    """Longest request in tokens, prompt and answer together (vLLM's --max-model-len)."""
    concurrency: Annotated[int, Field(ge=1, le=1_000_000), AS_A_NUMBER] = 1
    """Requests to be held at once, over all replicas. Default: 1."""
    input_tokens: TokenCount = 1000
    """Prompt tokens of a typical request. Default: 1000."""
    output_tokens: TokenCount = 200
    """Generated tokens of a typical request. Default: 200."""
    latency_targets: LatencyTargets = LatencyTargets()
    """Only pools that are estimated to keep to these. Default: all."""
    long_context: LongContext | None = None
    """Serve long requests by replicas of their own, placed by what they alone need, behind a
    Service of their own. Default: the same replicas serve all requests."""

    @property
    def short_part(self) -> "Workload":
        """What is left for the object itself where long requests have an endpoint of their own."""
        if self.long_context is None:
            return self
        rest = self.concurrency - _concurrency(self.long_context)
        part = {"max_model_len": self.long_context.above, "concurrency": rest, "long_context": None}
        return self.model_copy(update=part)

    def long_part(self, long: LongContext) -> "Workload":
        """What the endpoint for long requests has to serve."""
        typical_input, typical_output = self._typical_long(long)
        part: dict[str, Any] = {
            "concurrency": _concurrency(long),
            "input_tokens": typical_input,
            "output_tokens": typical_output,
            "long_context": None,
        }
        if long.latency_targets is not None:
            part["latency_targets"] = long.latency_targets
        return self.model_copy(update=part)

    def _typical_long(self, long: LongContext) -> tuple[int, int]:
        """Prompt and answer of a typical long request; no prompt where the answer takes all."""
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
                " no request would be long; lower the one or raise the other"
            )
        if _concurrency(long) >= self.concurrency:
            raise ValueError(
                f"longContext.concurrency {_concurrency(long)} must be below concurrency"
                f" {self.concurrency}: no request would be left for the object itself; lower the"
                " one or raise the other"
            )

    def _check_typical_requests(self, long: LongContext) -> None:
        short = self.input_tokens + self.output_tokens
        if short > long.above:
            raise ValueError(
                f"longContext.above is {long.above}, and a typical request (inputTokens and"
                f" outputTokens) has {short} tokens: it would be long; raise above, or say what"
                " is typical of the short ones"
            )
        typical_input, typical_output = self._typical_long(long)
        if typical_input == 0:
            raise ValueError(
                f"longContext.inputTokens is not set, and outputTokens {typical_output} leave no"
                " room for a prompt; set it"
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
