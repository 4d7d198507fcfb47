"""Estimate the seconds of one engine step, which decodes requests and prefills prompt tokens.

Algorithm. Continuous batching puts decoding requests and chunks of prompts into the same step:

    step = weights read / bandwidth + linear operations / speed of the precision
         + KV cache read / bandwidth (or the operations on it, if they take longer)
         + attention of the prompts' tokens + layers x their fixed cost
         + bytes sent to the group / links + requests x the host's cost of each

A step reads weights once for all tokens, and only the experts that receive a token; the other terms
are linear in requests and tokens. The terms add up, as the operations of a layer wait for each
other; measurements match the sum better than the largest term.
"""

from dataclasses import dataclass, replace
from typing import Final

from tonnage.fit.model import MemoryAccount, Parallelism
from tonnage.throughput.figures import ThroughputData
from tonnage.throughput.model import Demand
from tonnage.throughput.speed import Speed
from tonnage.throughput.work import TokenWork

_ACTIVATION_BYTES: Final = 2
_COLLECTIVES_PER_LAYER: Final = 2
_SENT_TENSORS: Final = 2


@dataclass(frozen=True, slots=True)
class StepTime:
    """The costs of a step of one pipeline stage, on each of its GPUs.

    `weight_read_speed` is in bytes per second. Seconds: of each step, of each token in it, and
    additional ones of each decoding request and of each prompt token.
    """

    work: TokenWork
    account: MemoryAccount
    gpus: int
    weight_read_speed: float
    fixed_seconds: float
    token_seconds: float
    request_seconds: float
    prompt_token_seconds: float

    def seconds(self, requests: float, prompt_tokens: float) -> float:
        """Return the seconds of a step with this many decoding requests and prompt tokens.

        Both are sums over all data-parallel ranks of the replica.
        """
        tokens = requests + prompt_tokens
        weights = self.work.weight_bytes(self.account, self.gpus, tokens)
        return (
            weights / self.weight_read_speed
            + self.fixed_seconds
            + tokens * self.token_seconds
            + requests * self.request_seconds
            + prompt_tokens * self.prompt_token_seconds
        )


def time_steps(
    work: TokenWork, account: MemoryAccount, parallelism: Parallelism, speed: Speed, demand: Demand
) -> StepTime:
    """Return the step time of one pipeline stage of a replica under a workload."""
    layers = work.shape.layers / parallelism.pipeline
    expert_layers = work.expert_layers / parallelism.pipeline
    collectives, sent_bytes = _count_collectives(work, parallelism)
    link_seconds = sent_bytes / speed.links if speed.links is not None else 0.0
    return StepTime(
        work=work,
        account=account,
        gpus=parallelism.gpus,
        weight_read_speed=speed.read / speed.weight_reads,
        fixed_seconds=layers * speed.layer_seconds
        + expert_layers * speed.expert_layer_seconds
        + collectives * speed.collective_seconds,
        token_seconds=_estimate_linear_seconds(work, speed) / parallelism.gpus + link_seconds,
        request_seconds=_estimate_decode_seconds(work, account, parallelism, speed, demand)
        + speed.request_seconds / parallelism.data,
        prompt_token_seconds=work.prompt_attention(demand.input_tokens / 2)
        / speed.prompt_attention
        / parallelism.gpus,
    )


def over_nodes(
    step: StepTime, parallelism: Parallelism, bytes_per_second: float, data: ThroughputData
) -> StepTime:
    """Return the step time of a stage on several nodes, or one that sends its output to another.

    A stage sends a token's hidden state and residual, of which each GPU of a tensor-parallel group
    sends its part. In a group over several nodes, each collective operation crosses the network,
    with as many rings as a node has GPUs: each of them sends its part of the bytes.

    Source: vllm/distributed/parallel_state.py, send_tensor_dict with an all-gather group.
    """
    gpus_per_node = parallelism.footprint.gpus_per_node
    if parallelism.tensor * parallelism.data > gpus_per_node:
        crossings, sent_bytes = _count_collectives(step.work, parallelism)
        token_bytes = sent_bytes / gpus_per_node
    else:
        crossings = 1.0
        hidden_bytes = step.work.shape.hidden_size * _ACTIVATION_BYTES
        token_bytes = _SENT_TENSORS * hidden_bytes / parallelism.tensor
    boundary = data.several_nodes.seconds_per_boundary
    return replace(
        step,
        fixed_seconds=step.fixed_seconds + crossings * boundary,
        token_seconds=step.token_seconds + token_bytes / bytes_per_second,
    )


def _estimate_linear_seconds(work: TokenWork, speed: Speed) -> float:
    """Return the seconds of a token's linear layers and experts, all on one GPU."""
    expert_parameters = work.active_expert_parameters
    other_parameters = work.active_parameters - expert_parameters
    return 2 * (other_parameters / speed.compute + expert_parameters / speed.expert_compute)


def _estimate_decode_seconds(
    work: TokenWork, account: MemoryAccount, parallelism: Parallelism, speed: Speed, demand: Demand
) -> float:
    """Return the seconds for attention and states of a request in the middle of its output."""
    context_tokens = demand.input_tokens + demand.output_tokens / 2
    moved_bytes = work.kv_bytes(account, 1 / parallelism.data, context_tokens)
    moved_bytes += work.state_bytes_moved(parallelism.gpus, 1)
    operations = work.decode_attention(context_tokens) / parallelism.gpus
    return max(moved_bytes / speed.read, operations / speed.attention)


def _count_collectives(work: TokenWork, parallelism: Parallelism) -> tuple[float, float]:
    """Return the collective operations of a step, and the bytes a GPU sends for each token.

    Tensor parallelism all-reduces the outputs of attention and MLP in every layer. With data
    parallelism, all ranks send their tokens to the experts and receive them back.
    """
    layers = work.shape.layers / parallelism.pipeline
    expert_layers = work.expert_layers / parallelism.pipeline
    token_bytes = work.shape.hidden_size * _ACTIVATION_BYTES
    tensor_size, data_size = parallelism.tensor, parallelism.data
    collectives = sent_bytes = 0.0
    if tensor_size > 1:
        collectives += _COLLECTIVES_PER_LAYER * layers
        peer_share = (tensor_size - 1) / tensor_size
        sent_bytes += _COLLECTIVES_PER_LAYER * layers * 2 * peer_share * token_bytes / data_size
    if data_size > 1:
        collectives += _COLLECTIVES_PER_LAYER * expert_layers
        group = tensor_size * data_size
        sent_bytes += _COLLECTIVES_PER_LAYER * expert_layers * (group - 1) / group * token_bytes
    return collectives, sent_bytes
