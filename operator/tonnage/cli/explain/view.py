"""Prints the explanation of one object as tables and text."""

from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from tonnage.api.conditions import ConditionType
from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.status import PlacementStatus
from tonnage.cli.explain.claims import PodClaim
from tonnage.cli.explain.explanation import Explanation, format_pod_state, measured_share
from tonnage.cli.explain.starts import format_prefetch, running_download, tabulate_starts
from tonnage.cli.output import make_table, print_line
from tonnage.cli.plan.view import format_condition, format_endpoint, show_candidates, show_placement
from tonnage.cli.pools_view import tabulate_pools
from tonnage.fit.messages import format_count, format_parallelism
from tonnage.placement.report import read_parallelism
from tonnage.reconcile.observation.child_pods import ChildPod


def show_explanation(console: Console, explanation: Explanation) -> None:
    """Print model, fleet, candidates, replicas, measurements and next steps."""
    _show_title(console, explanation)
    _show_model(console, explanation)
    _print_heading(console, "Fleet")
    console.print(
        _indent(tabulate_pools(explanation.pools)) if explanation.pools else "  no GPU node"
    )
    _show_verdicts(console, explanation)
    _show_running(console, explanation)
    _show_measured(console, explanation)
    _print_heading(console, "Next")
    for step in explanation.steps:
        when = f"{step.when}: " if step.when else ""
        print_line(console, f"  {escape(when + step.what)}")


def _show_title(console: Console, explanation: Explanation) -> None:
    generation, reported = explanation.generations
    suffix = "" if reported == generation else f", reported: {reported or 'none yet'}"
    console.print(
        f"[bold]{escape(str(explanation.planned.key))}[/bold] (generation {generation}{suffix})"
    )
    ready = explanation.conditions.get(ConditionType.READY)
    available = explanation.conditions.get(ConditionType.AVAILABLE)
    if ready is not None:
        print_line(console, f"  {format_condition(ready)}")
    if available is not None and (ready is None or available.message != ready.message):
        print_line(console, f"  {format_condition(available)}")
    for endpoint in explanation.planned.plan.status.endpoints or []:
        state = "ready" if endpoint.ready else f"not ready: {endpoint.reason}"
        print_line(console, f"  {escape(f'{format_endpoint(endpoint)}: {state}')}")
    pool = explanation.conditions.get(ConditionType.INFERENCE_POOL_APPLIED)
    if pool is not None:
        print_line(console, f"  {format_condition(pool)}")


def _show_model(console: Console, explanation: Explanation) -> None:
    _print_heading(console, "Model")
    accepted = explanation.conditions.get(ConditionType.ACCEPTED)
    if accepted is not None:
        print_line(console, f"  {format_condition(accepted)}")
    spec = explanation.planned.observation.spec
    if isinstance(spec, InferenceDeploymentSpec):
        print_line(console, f"  {escape(_format_workload(spec))}")


def _format_workload(spec: InferenceDeploymentSpec) -> str:
    workload = spec.workload
    replicas = "as many replicas as that needs"
    if spec.replicas is not None:
        replicas = format_count(spec.replicas, "replica")
    return (
        f"{format_count(workload.concurrency, 'request')} at once of up to"
        f" {workload.max_model_len:,} tokens,"
        f" typically {workload.input_tokens:,} in and {workload.output_tokens:,} out;"
        f" {replicas}; policy {spec.placement.policy}"
    )


def _show_verdicts(console: Console, explanation: Explanation) -> None:
    _print_heading(console, "Pools judged")
    placed = explanation.conditions.get(ConditionType.PLACED)
    if placed is not None:
        print_line(console, f"  {format_condition(placed)}")
    show_candidates(console, explanation.planned.plan.status)


def _show_running(console: Console, explanation: Explanation) -> None:
    _print_heading(console, "Runs")
    status, pods = explanation.planned.plan.status, explanation.planned.observation.pods
    for placement in status.placements:
        print_line(console, f"  {escape(_format_placement(placement))}")
        show_placement(console, placement)
    if pods:
        console.print(_indent(_tabulate_pods(pods)))
    else:
        console.print("  no pod yet")
    observation = explanation.planned.observation
    starts, job = observation.starts.by_pod, running_download(observation.weights.job)
    if starts or job is not None:
        console.print(_indent(tabulate_starts(starts, job, status.model, explanation.at)))
    if status.prefetch is not None:
        print_line(console, f"  {escape(format_prefetch(status.prefetch))}")
    if explanation.claims:
        console.print(_indent(_tabulate_claims(explanation.claims)))


def _tabulate_pods(pods: Iterable[ChildPod]) -> Table:
    table = make_table("POD", "NODE", "GPUS", "READY", "RESTARTS", "", right=("GPUS", "RESTARTS"))
    for pod in pods:
        table.add_row(
            escape(pod.name),
            escape(pod.node or "-"),
            str(pod.gpus),
            "yes" if pod.ready else "no",
            str(pod.restarts),
            escape(format_pod_state(pod)),
        )
    return table


def _tabulate_claims(claims: Iterable[PodClaim]) -> Table:
    table = make_table("CLAIM", "POD", "STATE", "DEVICES")
    for claim in claims:
        devices = ", ".join(claim.devices) or "-"
        table.add_row(escape(claim.name), escape(claim.pod), claim.state, escape(devices))
    return table


def _format_placement(placement: PlacementStatus) -> str:
    split = format_parallelism(read_parallelism(placement))
    return (
        f"pool {placement.pool} ({placement.accelerator}, {split}): {placement.ready_replicas} of"
        f" {placement.replicas} replicas ready; {placement.image}"
    )


def _show_measured(console: Console, explanation: Explanation) -> None:
    _print_heading(console, f"Measured by {explanation.engine}")
    for placement in explanation.planned.plan.status.placements:
        share = measured_share(placement)
        measured = (
            "not measured yet: neither Prometheus nor the pods have reported the KV cache"
            if share is None
            else f"{placement.measured_kv_cache_tokens:,} tokens of KV cache a replica, "
            f"{share:.1%} of the {placement.kv_cache_tokens:,} predicted"
        )
        print_line(console, f"  {escape(placement.name)}: {measured}")
    if not explanation.planned.plan.status.placements:
        console.print("  nothing runs")


def _print_heading(console: Console, title: str) -> None:
    console.print()
    console.print(f"[bold]{title}[/bold]")


def _indent(table: Table) -> Padding:
    return Padding(table, (0, 0, 0, 2))
