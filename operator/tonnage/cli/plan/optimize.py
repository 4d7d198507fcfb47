"""`plan --optimize`: compares placing new objects together with placing them one by one."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from tonnage.api.placement import PlacementSpec
from tonnage.catalog.prices import format_money
from tonnage.cli.errors import InputError
from tonnage.cli.output import make_table, print_line
from tonnage.cli.plan.planning import Planned
from tonnage.fit.messages import format_count
from tonnage.fleet.model import FleetSnapshot, Reservation
from tonnage.fleet.usage.gpu_pods import Owner
from tonnage.placement.batches.assignment import Assignment, Batch, assign
from tonnage.placement.batches.integer_program import NotSolvedError, SolverMissingError
from tonnage.placement.model import Option, Request
from tonnage.reconcile.accept import Accepted, accept
from tonnage.reconcile.scheduling.context import Dependencies, owner_of
from tonnage.reconcile.scheduling.replica_pods import replica_pods
from tonnage.workloads.metadata import optional_entries


def optimise(
    planned: Sequence[Planned], fleet: FleetSnapshot, dependencies: Dependencies
) -> Assignment:
    """The best assignment of the objects that do not run yet. Running objects keep their placement,
    and so do objects with an endpoint for long requests.

    Raises InputError if the solver is missing or finds no solution in time.
    """
    requests: list[Request] = []
    reservations: list[Reservation] = []
    for one in planned:
        accepted = accept(one.observation, dependencies.catalog)
        # Both endpoints of a model share one spec.placement: it cannot pin only one of them.
        if one.observation.deployments or one.observation.context is not None:
            reservations += one.plan.reservations
        elif isinstance(accepted, Accepted):
            request = Request(
                one.observation.key,
                accepted.spec,
                accepted.checkpoint,
                corrections=dependencies.corrections.counting_in(one.key.namespace),
                refused_engines=accepted.refused_engines,
                pods=replica_pods(
                    owner_of(one.observation),
                    accepted,
                    one.observation.limits,
                    dependencies.catalog,
                    dependencies.settings,
                ),
            )
            requests.append(request)
    owners = {one.observation.key for one in planned}
    others = (one for one in fleet.reservations if one.owner not in owners)
    fleet = replace(fleet, reservations=(*others, *reservations))
    try:
        return assign(requests, fleet, dependencies.catalog)
    except (SolverMissingError, NotSolvedError) as error:
        raise InputError(f"--optimize: {error}") from None


def show_assignment(console: Console, assignment: Assignment) -> None:
    """Print both assignments by object, their costs, and the settings for the better one."""
    before, after = assignment.before, assignment.after
    console.print("[bold]One after another, and all together[/bold]")
    table = make_table("OBJECT", "IN SEQUENCE", "$/H", "TOGETHER", "$/H ", right=("$/H", "$/H "))
    for owner in _owners(after):
        cells = (
            *_format_option(before.fully_placed.get(owner)),
            *_format_option(after.fully_placed.get(owner)),
        )
        differs = cells[0] != cells[2]
        table.add_row(escape("/".join(owner)), *cells, style="green" if differs else "")
    table.add_row(
        "all",
        _format_placed(before),
        _format_cost(before),
        _format_placed(after),
        _format_cost(after),
        style="bold",
    )
    console.print(Padding(table, (0, 0, 0, 2)))
    if not assignment.pins:
        console.print("  One after another is the best assignment found.")
        return
    console.print("  To get it, create the objects in this order, with this spec.placement:")
    for owner in _owners(after):
        pinned = assignment.pins.get(owner)
        placement = f": {json.dumps(_pin_data(pinned))}" if pinned else ""
        print_line(console, f"  - {escape('/'.join(owner) + placement)}")


def assignment_data(assignment: Assignment) -> dict[str, Any]:
    """Both assignments as JSON data; `objects` are in the order to create them."""
    before, after = assignment.before, assignment.after
    return {
        "costPerHour": {"inSequence": _format_cost(before), "together": _format_cost(after)},
        "placedWhole": {
            "inSequence": len(before.fully_placed),
            "together": len(after.fully_placed),
        },
        "objects": [
            {
                "namespace": owner[0],
                "name": owner[1],
                "inSequence": _option_data(before.fully_placed.get(owner)),
                "together": _option_data(after.fully_placed.get(owner)),
                "placement": _pin_data(assignment.pins[owner])
                if owner in assignment.pins
                else None,
            }
            for owner in _owners(after)
        ],
    }


def _owners(batch: Batch) -> list[Owner]:
    return [one.request.owner for one in batch.sequence]


def _format_option(option: Option | None) -> tuple[str, str]:
    if option is None:
        return "not whole", "-"
    cost = option.cost_per_hour
    gpus = format_count(option.parallelism.gpus, "GPU")
    where = f"{option.pool.name}, {option.replicas} x {gpus}"
    return escape(where), "-" if cost is None else format_money(cost)


def _format_placed(batch: Batch) -> str:
    return f"{len(batch.fully_placed)} of {len(batch.sequence)} whole"


def _format_cost(batch: Batch) -> str:
    return format_money(batch.cost_per_hour)


def _pin_data(pinned: PlacementSpec) -> dict[str, Any]:
    """The fields of spec.placement to set."""
    return pinned.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _option_data(option: Option | None) -> dict[str, Any] | None:
    if option is None:
        return None
    cost = option.cost_per_hour
    return {
        "pool": option.pool.name,
        "tensorParallelSize": option.parallelism.tensor,
        "pipelineParallelSize": option.parallelism.pipeline,
        **optional_entries(option.parallelism),
        "replicas": option.replicas,
        "costPerHour": None if cost is None else format_money(cost),
    }
