"""`plan --optimize`: the new objects of a batch placed together, beside one after the other."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from tonnage.api.inference import PlacementSpec
from tonnage.cli.errors import InputError
from tonnage.cli.output import make_table
from tonnage.cli.planning import Planned
from tonnage.fleet.model import FleetSnapshot, Reservation
from tonnage.placement.assignment import Assignment, Batch, assign
from tonnage.placement.integer_program import NotSolvedError, SolverMissingError
from tonnage.placement.messages import format_count
from tonnage.placement.model import Option, Request
from tonnage.placement.pricing import format_money
from tonnage.placement.sequence import Owner
from tonnage.reconcile.accept import Accepted, accept
from tonnage.reconcile.context import Dependencies


def optimise(planned: Sequence[Planned], fleet: FleetSnapshot, world: Dependencies) -> Assignment:
    """The best assignment of the objects that do not run yet; those that run stay where they are,
    and so do objects whose requests are told apart by length.

    Raises InputError where there is no solver, or it found nothing in time.
    """
    requests: list[Request] = []
    held: list[Reservation] = []
    for one in planned:
        accepted = accept(one.observation, world.catalog)
        # Both endpoints of a model have one spec.placement: no pin could be for one of them.
        if one.observation.deployments or one.observation.context is not None:
            held += one.plan.reservations
        elif isinstance(accepted, Accepted):
            request = Request(
                one.observation.owner,
                accepted.spec,
                accepted.checkpoint,
                corrections=world.corrections.counting_in(one.key.namespace),
            )
            requests.append(request)
    mine = {one.observation.owner for one in planned}
    others = [found for found in fleet.reservations if found.owner not in mine]
    try:
        return assign(requests, replace(fleet, reservations=(*others, *held)), world.catalog)
    except (SolverMissingError, NotSolvedError) as error:
        raise InputError(f"--optimize: {error}") from None


def show_assignment(console: Console, assignment: Assignment) -> None:
    """Both assignments object by object, their costs, and what has to be set for the better one."""
    before, after = assignment.before, assignment.after
    console.print("[bold]One after another, and all together[/bold]")
    table = make_table("OBJECT", "IN SEQUENCE", "$/H", "TOGETHER", "$/H ", right=("$/H", "$/H "))
    for owner in _owners(after):
        cells = (*_cells(before.whole.get(owner)), *_cells(after.whole.get(owner)))
        moved = cells[0] != cells[2]
        table.add_row(escape("/".join(owner)), *cells, style="green" if moved else "")
    table.add_row("all", _placed(before), _cost(before), _placed(after), _cost(after), style="bold")
    console.print(Padding(table, (0, 0, 0, 2)))
    if not assignment.pins:
        console.print("  One after another is the best that was found.")
        return
    console.print("  To have it, create them in this order, with spec.placement as told:")
    for owner in _owners(after):
        pinned = assignment.pins.get(owner)
        told = f": {json.dumps(_pin_data(pinned))}" if pinned else ""
        console.print(f"  - {escape('/'.join(owner) + told)}", soft_wrap=True)


def assignment_data(assignment: Assignment) -> dict[str, Any]:
    """Both assignments for programs; `objects` are in the order in which to create them."""
    before, after = assignment.before, assignment.after
    return {
        "costPerHour": {"inSequence": _cost(before), "together": _cost(after)},
        "placedWhole": {"inSequence": len(before.whole), "together": len(after.whole)},
        "objects": [
            {
                "namespace": owner[0],
                "name": owner[1],
                "inSequence": _option_data(before.whole.get(owner)),
                "together": _option_data(after.whole.get(owner)),
                "placement": _pin_data(assignment.pins[owner])
                if owner in assignment.pins
                else None,
            }
            for owner in _owners(after)
        ],
    }


def _owners(batch: Batch) -> list[Owner]:
    return [one.request.owner for one in batch.sequence]


def _cells(option: Option | None) -> tuple[str, str]:
    if option is None:
        return "not whole", "-"
    cost = option.cost_per_hour
    gpus = format_count(option.parallelism.gpus, "GPU")
    where = f"{option.pool.name}, {option.replicas} x {gpus}"
    return escape(where), "-" if cost is None else format_money(cost)


def _placed(batch: Batch) -> str:
    return f"{len(batch.whole)} of {len(batch.sequence)} whole"


def _cost(batch: Batch) -> str:
    return format_money(batch.cost_per_hour)


def _pin_data(pinned: PlacementSpec) -> dict[str, Any]:
    """The part of a spec.placement that has to be written."""
    return pinned.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _option_data(option: Option | None) -> dict[str, Any] | None:
    if option is None:
        return None
    cost = option.cost_per_hour
    return {
        "pool": option.pool.name,
        "tensorParallelSize": option.parallelism.tensor,
        "pipelineParallelSize": option.parallelism.pipeline,
        "replicas": option.replicas,
        "costPerHour": None if cost is None else format_money(cost),
    }
