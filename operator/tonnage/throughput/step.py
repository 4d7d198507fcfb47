"""Seconds of one step of the engine: some requests get a token each, some prompt is read.

Algorithm. Continuous batching puts decoding requests and pieces of prompts into the same step:

    step = weights read / bandwidth + linear operations / speed of the precision
         + KV cache read / bandwidth (or the operations on it, where those take longer)
         + attention of the prompts' tokens + layers x their fixed cost
         + bytes sent to the group / links + requests x the host's cost of each

Weights are read once for all tokens of the step, experts as far as some token is sent there; all
else grows evenly with requests and tokens. The terms add up: the operations of a layer wait for
each other, and the sum met measurements better than the largest term.
"""

from dataclasses import dataclass
from typing import Final

from tonnage.fit.model import MemoryAccount, Parallelism
from tonnage.throughput.model import Demand
from tonnage.throughput.speed import Speed
from tonnage.throughput.work import TokenWork

_ACTIVATION_BYTES: Final = 2
_COLLECTIVES_PER_LAYER: Final = 2


@dataclass(frozen=True, slots=True)
class StepTime:
    """What a step of one pipeline stage takes, on each of its GPUs.

    `weights_read` is the speed at which weights are read, in bytes a second. Seconds: of any step,
    of each token in it, of each decoding request beside, of each token of a prompt beside.
    """

    work: TokenWork
    account: MemoryAccount
    gpus: int
    weights_read: float
    fixed_seconds: float
    token_seconds: float
    request_seconds: float
    prompt_token_seconds: float

    def seconds(self, requests: float, prompt_tokens: float) -> float:
        """Seconds of a step in which so many requests get a token and so much prompt is read.

        Counted over all data-parallel ranks of the replica.
        """
        tokens = requests + prompt_tokens
        weights = self.work.weight_bytes(self.account, self.gpus, tokens)
        return (
            weights / self.weights_read
            + self.fixed_seconds
            + tokens * self.token_seconds
            + requests * self.request_seconds
            + prompt_tokens * self.prompt_token_seconds
        )


def time_steps(
    work: TokenWork, account: MemoryAccount, split: Parallelism, speed: Speed, demand: Demand
) -> StepTime:
    """The steps of one pipeline stage of a replica under a workload."""
    layers, routed = work.shape.layers / split.pipeline, work.expert_layers / split.pipeline
    collectives, sent_bytes = _collectives(work, split)
    links = sent_bytes / speed.links if speed.links is not None else 0.0
    return StepTime(
        work=work,
        account=account,
        gpus=split.gpus,
        weights_read=speed.read / speed.weight_reads,
        fixed_seconds=layers * speed.layer_seconds
        + routed * speed.expert_layer_seconds
        + collectives * speed.collective_seconds,
        token_seconds=_linear_seconds(work, speed) / split.gpus + links,
        request_seconds=_decode_seconds(work, account, split, speed, demand)
        + speed.request_seconds / split.data,
        prompt_token_seconds=work.prompt_attention(demand.input_tokens / 2)
        / speed.attention
        / split.gpus,
    )


def _linear_seconds(work: TokenWork, speed: Speed) -> float:
    """Operations of a token in linear layers and experts, on one GPU for all."""
    experts = work.active_expert_parameters
    shared = work.active_parameters - experts
    return 2 * (shared / speed.compute + experts / speed.expert_compute)


def _decode_seconds(
    work: TokenWork, account: MemoryAccount, split: Parallelism, speed: Speed, demand: Demand
) -> float:
    """Attention of a decoding request in the middle of its output, and its states."""
    context = demand.input_tokens + demand.output_tokens / 2
    moved = work.kv_bytes(account, 1 / split.data, context)
    moved += work.state_bytes_moved(split.gpus, 1)
    operations = work.decode_attention(context) / split.gpus
    return max(moved / speed.read, operations / speed.attention)


def _collectives(work: TokenWork, split: Parallelism) -> tuple[float, float]:
    """Collective operations of a step, and bytes that a GPU sends in them for each token.

    Tensor parallelism all-reduces what attention and the MLP of every layer give; with data
    parallelism experts see the tokens of all ranks, and give them back.
    """
    layers, routed = work.shape.layers / split.pipeline, work.expert_layers / split.pipeline
    message = work.shape.hidden_size * _ACTIVATION_BYTES
    count = sent = 0.0
    if split.tensor > 1:
        count += _COLLECTIVES_PER_LAYER * layers
        peers = (split.tensor - 1) / split.tensor
        sent += _COLLECTIVES_PER_LAYER * layers * 2 * peers * message / split.data
    if split.data > 1:
        count += _COLLECTIVES_PER_LAYER * routed
        group = split.tensor * split.data
        sent += _COLLECTIVES_PER_LAYER * routed * (group - 1) / group * message
    return count, sent
