"""The story of one object as people read it."""

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from tonnage.api.conditions import ConditionType
from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.status import PlacementStatus
from tonnage.cli.explain_story import Story, measured_share, tell_pod
from tonnage.cli.output import make_table
from tonnage.cli.plan_view import condition_line, show_candidates, show_placement, tell_endpoint
from tonnage.cli.pools_view import tabulate_pools
from tonnage.placement.messages import format_count


def show_story(console: Console, story: Story) -> None:
    """Print the road of the object in the order in which it goes it."""
    _show_title(console, story)
    _show_model(console, story)
    _head(console, "Fleet")
    console.print(_indented(tabulate_pools(story.pools)) if story.pools else "  no GPU node")
    _show_verdicts(console, story)
    _show_running(console, story)
    _show_measured(console, story)
    _head(console, "Next")
    for step in story.steps:
        when = f"{step.when}: " if step.when else ""
        console.print(f"  {escape(when + step.what)}", soft_wrap=True)


def _show_title(console: Console, story: Story) -> None:
    generation, reported = story.generations
    seen = "" if reported == generation else f", reported: {reported or 'none yet'}"
    console.print(f"[bold]{escape(str(story.planned.key))}[/bold] (generation {generation}{seen})")
    ready = story.conditions.get(ConditionType.READY)
    available = story.conditions.get(ConditionType.AVAILABLE)
    if ready is not None:
        console.print(f"  {condition_line(ready)}", soft_wrap=True)
    if available is not None and (ready is None or available.message != ready.message):
        console.print(f"  {condition_line(available)}", soft_wrap=True)
    for endpoint in story.planned.plan.status.endpoints or []:
        told = "ready" if endpoint.ready else f"not ready: {endpoint.reason}"
        console.print(f"  {escape(f'{tell_endpoint(endpoint)}: {told}')}", soft_wrap=True)
    pool = story.conditions.get(ConditionType.INFERENCE_POOL_APPLIED)
    if pool is not None:
        console.print(f"  {condition_line(pool)}", soft_wrap=True)


def _show_model(console: Console, story: Story) -> None:
    _head(console, "Model")
    accepted = story.conditions.get(ConditionType.ACCEPTED)
    if accepted is not None:
        console.print(f"  {condition_line(accepted)}", soft_wrap=True)
    spec = story.planned.observation.spec
    if isinstance(spec, InferenceDeploymentSpec):
        console.print(f"  {escape(_tell_workload(spec))}", soft_wrap=True)


def _tell_workload(spec: InferenceDeploymentSpec) -> str:
    workload = spec.workload
    replicas = "as many replicas as that needs"
    if spec.replicas is not None:
        replicas = format_count(spec.replicas, "replica")
    return (
        f"{workload.concurrency} requests at once of up to {workload.max_model_len:,} tokens,"
        f" typically {workload.input_tokens:,} in and {workload.output_tokens:,} out;"
        f" {replicas}; policy {spec.placement.policy}"
    )


def _show_verdicts(console: Console, story: Story) -> None:
    _head(console, "Pools judged")
    placed = story.conditions.get(ConditionType.PLACED)
    if placed is not None:
        console.print(f"  {condition_line(placed)}", soft_wrap=True)
    show_candidates(console, story.planned.plan.status)


def _show_running(console: Console, story: Story) -> None:
    _head(console, "Runs")
    status, pods = story.planned.plan.status, story.planned.observation.pods
    for placement in status.placements:
        console.print(f"  {escape(_tell_placement(placement))}", soft_wrap=True)
        show_placement(console, placement)
    if not pods:
        console.print("  no pod yet")
        return
    table = make_table("POD", "NODE", "GPUS", "READY", "RESTARTS", "", right=("GPUS", "RESTARTS"))
    for pod in pods:
        table.add_row(
            escape(pod.name),
            escape(pod.node or "-"),
            str(pod.gpus),
            "yes" if pod.ready else "no",
            str(pod.restarts),
            escape(tell_pod(pod)),
        )
    console.print(_indented(table))


def _tell_placement(placement: PlacementStatus) -> str:
    split = f"TP {placement.tensor_parallel_size}"
    if placement.pipeline_parallel_size > 1:
        split += f", PP {placement.pipeline_parallel_size}"
    return (
        f"pool {placement.pool} ({placement.accelerator}, {split}): {placement.ready_replicas} of"
        f" {placement.replicas} replicas ready; {placement.image}"
    )


def _show_measured(console: Console, story: Story) -> None:
    _head(console, "Measured by vLLM")
    for placement in story.planned.plan.status.placements:
        share = measured_share(placement)
        told = (
            "nothing is known yet: neither a Prometheus nor the pods have told"
            if share is None
            else f"{placement.measured_kv_cache_tokens:,} tokens of KV cache a replica, "
            f"{share:.1%} of the {placement.kv_cache_tokens:,} predicted"
        )
        console.print(f"  {escape(placement.name)}: {told}", soft_wrap=True)
    if not story.planned.plan.status.placements:
        console.print("  nothing runs")


def _head(console: Console, title: str) -> None:
    console.print()
    console.print(f"[bold]{title}[/bold]")


def _indented(table: Table) -> Padding:
    return Padding(table, (0, 0, 0, 2))
