"""Prints a plan: the verdict, every pool with its reason, the memory of one GPU."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from tonnage.api.conditions import Condition, ConditionType
from tonnage.api.status import (
    CandidateStatus,
    EndpointStatus,
    InferenceDeploymentStatus,
    MemoryStatus,
    PlacementStatus,
)
from tonnage.api.text import ELLIPSIS
from tonnage.cli.output import make_table, print_line
from tonnage.cli.plan.advice import PoolAdvice, format_advice
from tonnage.fit.messages import format_count
from tonnage.reconcile.key import Key
from tonnage.reconcile.plan import Plan

_COLOURS = {"Chosen": "green", "Feasible": "default", "Rejected": "dim"}


def show_plan(console: Console, key: Key, plan: Plan, advice: Sequence[PoolAdvice] = ()) -> None:
    """Print the plan of one object, and what to change where it does not fit."""
    console.print(f"[bold]{escape(str(key))}[/bold]")
    for condition in plan.status.conditions:
        if condition.type in (ConditionType.ACCEPTED, ConditionType.PLACED):
            print_line(console, f"  {format_condition(condition)}")
    for endpoint in plan.status.endpoints or []:
        print_line(console, f"  {escape(format_endpoint(endpoint))}")
    for placement in plan.status.placements:
        if placement.weight is not None:
            print_line(console, f"  {escape(_format_share(placement))}")
        show_placement(console, placement)
    show_candidates(console, plan.status)
    for line in format_advice(advice):
        print_line(console, f"  {escape(line)}")
    for action in plan.all_actions:
        print_line(console, f"  would {escape(str(action))}")
    console.print()


def format_endpoint(endpoint: EndpointStatus) -> str:
    """Which requests the endpoint serves, and by which Service and object."""
    return (
        f"{endpoint.context} requests (up to {endpoint.max_model_len:,} tokens): Service"
        f" {endpoint.service}, InferenceDeployment {endpoint.inference_deployment}"
    )


def _format_share(placement: PlacementStatus) -> str:
    replicas = format_count(placement.replicas, "replica")
    return f"{placement.pool}: {replicas}, {placement.weight} % of the work"


def format_condition(condition: Condition) -> str:
    """A condition as one line of markup: status, reason and message."""
    colour = "green" if condition.status == "True" else "red"
    verdict = f"{condition.type}={condition.status}"
    return f"[{colour}]{verdict}[/{colour}] {condition.reason}: {escape(condition.message)}"


def show_placement(console: Console, placement: PlacementStatus) -> None:
    """Print the memory of one GPU, and the estimated throughput and cost of the replicas."""
    memory = placement.memory
    print_line(
        console,
        f"  Memory of one GPU in GiB: {_format_terms(memory)} = {memory.budget_gi_b:.1f} of "
        f"{memory.device_gi_b:.1f}; a replica holds {placement.kv_cache_tokens:,} tokens",
    )
    if placement.estimate is not None:
        estimate = placement.estimate
        cost = estimate.cost_per_million_tokens
        console.print(
            f"  Estimate (±{estimate.band_percent} %): {estimate.tokens_per_second:,} tokens/s"
            + (f", ${cost} per million tokens" if cost else "")
        )


def _format_terms(memory: MemoryStatus) -> str:
    terms = {
        "weights": memory.weights_gi_b,
        "LoRA": memory.lora_gi_b,
        "activation": memory.activation_gi_b,
        "non-torch": memory.non_torch_gi_b,
        "graphs": memory.graph_gi_b,
        "correction": memory.correction_gi_b,
        "KV cache": memory.kv_cache_gi_b,
    }
    return " + ".join(f"{name} {gib:.1f}" for name, gib in terms.items() if gib is not None)


def show_candidates(console: Console, status: InferenceDeploymentStatus) -> None:
    """Print a line for each pool: its verdict, its figures, and the reason, whose message is left
    out where condition Placed has it. Where the operator chooses the engine, the line has it."""
    if not status.candidates:
        return
    placed = next(
        (one.message for one in status.conditions if one.type == ConditionType.PLACED), ""
    )
    numbers = ("TP", "GPUS", "REPLICAS", "$/H")
    has_engines = any(candidate.engine for candidate in status.candidates)
    engine = ("ENGINE",) if has_engines else ()
    table = make_table("POOL", "ACCELERATOR", *engine, "VERDICT", *numbers, "REASON", right=numbers)
    for candidate in status.candidates:
        table.add_row(
            escape(candidate.pool),
            candidate.accelerator or "-",
            *((candidate.engine or "-",) if has_engines else ()),
            candidate.verdict,
            *(_format_cell(value) for value in _figures(candidate)),
            escape(_format_reason(candidate, placed)),
            style=_COLOURS[candidate.verdict],
        )
    console.print(Padding(table, (0, 0, 0, 2)))
    for reason, count in status.omitted_candidates.items():
        console.print(f"  and {count} more pools: {escape(reason)}")


def _format_reason(candidate: CandidateStatus, placed: str) -> str:
    if candidate.message.removesuffix(ELLIPSIS) in placed:
        return candidate.reason
    return f"{candidate.reason}: {candidate.message}"


def _figures(candidate: CandidateStatus) -> tuple[int | str | None, ...]:
    return (
        _format_parallelism(candidate),
        candidate.gpus_per_replica,
        candidate.replicas,
        candidate.cost_per_hour,
    )


def _format_parallelism(candidate: CandidateStatus) -> str | None:
    """Format the tensor-parallel size with the other sizes above 1: 8, PP 2."""
    if candidate.tensor_parallel_size is None:
        return None
    others = {"PP": candidate.pipeline_parallel_size, "DP": candidate.data_parallel_size}
    further = (f", {name} {size}" for name, size in others.items() if size is not None)
    return "".join((str(candidate.tensor_parallel_size), *further))


def _format_cell(value: int | str | None) -> str:
    return "-" if value is None else str(value)
