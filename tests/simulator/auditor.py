"""Whether the operator keeps its promises to users, checked at each of its writes.

What a user is promised (docs/placement.md):

- a pool is left for a cheaper one, or for the first one, only after that has been so without a
  break for `rebalance.stabilizationWindow`, and by one object at a time;
- a pool that is short of GPUs is left only after `fallback.after`, and sooner only where its
  servers die;
- all replicas together cost at most `maxCostPerHour` where they are put;
- replicas that were added by load stay for `scaling.scaleDown.stabilizationWindow`;
- a plan whose servers died is not tried again for the same spec;
- no GPU is promised twice (tests/support/fleets/histories.py says what that means).
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tests.simulator.account import Account
from tests.simulator.gpu_site import Site
from tests.simulator.scalings import Scalings
from tests.simulator.scene import Scene
from tests.simulator.trials import Trials, has_died
from tests.support.faults.promise_book import PromiseBook, find_overcommitted, find_overpromised
from tests.support.fleets.promises import Promise, Sight, read_promises
from tonnage.api.names import LABEL_OWNER
from tonnage.api.parse import parse_duration, parse_spec
from tonnage.api.placement import PlacementSpec
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS, NODES, PODS
from tonnage.reconcile.observation.children import ChildDeployment, read_deployment
from tonnage.reconcile.observation.migration import Migration, MigrationReason
from tonnage.reconcile.scheduling.migration_lock import is_under_way


class Course:
    """How a figure has changed over time."""

    def __init__(self) -> None:
        self._steps: list[tuple[float, Any]] = []

    def note(self, at: float, value: Any) -> None:
        """It is so from now on."""
        if not self._steps or self._steps[-1][1] != value:
            self._steps.append((at, value))

    @property
    def now(self) -> Any:
        """What it is."""
        return self._steps[-1][1]

    def since(self, at: float) -> list[Any]:
        """All that it has been from then on."""
        before = [value for when, value in self._steps if when <= at]
        return [*before[-1:], *(value for when, value in self._steps if when > at)]


def is_by_choice(move: Migration) -> bool:
    """Whether the pool that was left could have gone on; who falls back to its first pool returns
    too, but by need."""
    asked = "(spec.placement.fallback.back)" in move.why
    return move.reason is MigrationReason.REBALANCED or asked


class AuditedSite(Site):
    """A Site that counts, and holds each write of the operator against the promises."""

    def __init__(self, pools: Mapping[str, Mapping[str, Any]]) -> None:
        self.account = Account()
        self.prices: dict[str, Course] = {pool: Course() for pool in pools}
        self._usable_gpus: dict[str, Course] = {pool: Course() for pool in pools}
        self._short_since: dict[str, float] = {}
        self._moved: dict[str, Migration] = {}
        self._gpus: dict[tuple[str, str], int] = {}
        self._trials, self.scalings = Trials(), Scalings()
        self._book, self._moment = PromiseBook(), 0
        self._left: object = None
        super().__init__(pools)

    # What is seen

    def declare(self, pool: str, dollars: str) -> None:
        self.prices[pool].note(self.seconds, Decimal(dollars))
        super().declare(pool, dollars)

    def note_losses(self) -> None:
        """To be called after nodes have gone, before the operator acts on that."""
        self._book.note_losses(self._sight(), self._moment + 1)
        self._moment += 2
        self._trials.begin()

    def note_scene(self, scene: Scene) -> None:
        """To be called when all have come to rest."""
        for pool, course in self._usable_gpus.items():
            course.note(self.seconds, scene.usable_gpus.get(pool, 0))
        for name in scene.wanted.keys() & self.traffic.keys():
            self._tell(*self.scalings.note(name, scene.wanted[name], self.seconds))
        short = {name for name in scene.wanted if scene.is_short(name)}
        self._short_since = {name: self._short_since.get(name, self.seconds) for name in short}
        unkept, _ = self._book.find_unkept(scene.sight, self._promises())
        self.account.double_bookings += [*find_overcommitted(scene.sight), *unkept]

    def step(self) -> None:
        super().step()
        died = list(filter(has_died, self.api.objects(PODS)))
        if died:
            objects = [body["metadata"] for body in self.api.objects(INFERENCE_DEPLOYMENTS)]
            generations = {metadata["name"]: metadata["generation"] for metadata in objects}
            for pod in died:
                self._trials.note_death(pod, generations)

    async def reconcile(self, name: str) -> float | None:
        calls = len(self.api.calls)
        seconds = await super().reconcile(name)
        self.account.reconciles += 1
        for call in self.api.calls[calls:]:
            if (call.verb, call.kind, call.effective) == ("apply", DEPLOYMENTS, True):
                self._check_written(name, read_deployment(self.deployment(call.name or "")))
        return seconds

    def leave_as_it_is(self) -> None:
        """Remember what is stored now."""
        self._left = self._everything()

    def is_as_left(self) -> bool:
        """Whether it is still the same."""
        return self._left == self._everything()

    # What is checked

    def _check_written(self, name: str, written: ChildDeployment) -> None:
        body = self.inference_deployment(name)
        placement = parse_spec(body["spec"]).placement
        if written.last_migration not in (None, self._moved.get(name)):
            assert written.last_migration is not None, "so it was found"
            self._check_move(name, written, written.last_migration, placement)
            self._moved[name] = written.last_migration
        self._gpus[name, written.pool] = written.parallelism.gpus
        self._check_cost(name, written, placement)
        template = written.child.body["spec"]["template"]
        self._tell(*self._trials.note_written(name, body["metadata"]["generation"], template))
        promises = self._promises()
        for promise in self._book.note_promises(promises, self._moment):
            self.account.promises += 1
            self.account.double_bookings += find_overpromised(promise, promises, self._sight())

    def _check_move(
        self, name: str, to: ChildDeployment, move: Migration, placement: PlacementSpec
    ) -> None:
        self.account.moves[move.reason.value] += 1
        if not is_by_choice(move):
            self._check_patience(name, placement)
            return
        self._check_alone(name)
        began = self.seconds - parse_duration(placement.rebalance.stabilization_window)
        if move.reason is MigrationReason.REBALANCED:
            self._check_cheaper(name, to, move, began, placement.rebalance.percent)
        else:
            self._check_capacity(name, to, began)

    def _check_patience(self, name: str, placement: PlacementSpec) -> None:
        short = self.seconds - self._short_since.get(name, self.seconds)
        if short < parse_duration(placement.fallback.after) and name not in self._trials.dying:
            self._tell(f"{name} fell back after {short:.0f} s, not {placement.fallback.after}")

    def _check_alone(self, name: str) -> None:
        owned: dict[str, list[ChildDeployment]] = {}
        for body in self.api.objects(DEPLOYMENTS):
            owner = body["metadata"]["labels"][LABEL_OWNER]
            owned.setdefault(owner, []).append(read_deployment(body))
        others = [other for other, children in owned.items() if is_under_way(children)]
        if set(others) - {name}:
            self._tell(f"{name} moves by choice while {', '.join(others)} moves")

    def _check_cheaper(
        self, name: str, to: ChildDeployment, move: Migration, began: float, percent: int
    ) -> None:
        before = self._gpus[name, move.pool]
        least = Decimal(100 - percent) / 100
        old, new = self.prices[move.pool].since(began), self.prices[to.pool].since(began)
        if max(new) * to.parallelism.gpus > min(old) * before * least:
            self._tell(f"{name} moved from {move.pool} ({old}) to {to.pool} ({new}) too early")

    def _check_capacity(self, name: str, to: ChildDeployment, began: float) -> None:
        usable = self._usable_gpus[to.pool].since(began)
        if min(usable) < to.wanted * to.parallelism.gpus:
            self._tell(f"{name} returned to {to.pool} whose usable GPUs were {usable}")

    def _check_cost(self, name: str, written: ChildDeployment, placement: PlacementSpec) -> None:
        if placement.max_cost_per_hour is None:
            return
        cost = written.wanted * written.parallelism.gpus * self.prices[written.pool].now
        if cost > Decimal(placement.max_cost_per_hour):
            self._tell(f"{name} costs {cost}/h, at most {placement.max_cost_per_hour}")

    # Inside

    def _tell(self, *what: str) -> None:
        self.account.violations += [f"{self.seconds / 3600:.2f} h: {one}" for one in what]

    def _sight(self) -> Sight:
        return Sight(self.api.objects(NODES), self.api.objects(PODS))

    def _promises(self) -> list[Promise]:
        objects = self.api.objects(INFERENCE_DEPLOYMENTS)
        return read_promises(self.api.objects(DEPLOYMENTS), objects, self.api.objects(NODES))
