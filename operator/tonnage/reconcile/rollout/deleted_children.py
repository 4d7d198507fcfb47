"""Create again what running replicas need and somebody has deleted, while no plan is carried out.

A plan that is carried out renders all of its children. In a pause, after a rollback, and while a
plan or a spec waits, they follow from the workloads that run.
"""

from collections.abc import Iterable, Iterator

from tonnage.fleet.fleet import Fleet
from tonnage.kube.kinds import SERVICES
from tonnage.kube.protocol import Object
from tonnage.reconcile.accept import may_serve
from tonnage.reconcile.actions import Action, Apply, apply_if_changed, stamped
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.serving import newest, pool_now
from tonnage.reconcile.observation.template_record import template_of
from tonnage.reconcile.rollout.claim_templates import find_missing_claim_templates
from tonnage.reconcile.rollout.services import make_service
from tonnage.reconcile.scheduling.context import owner_of
from tonnage.workloads.claim_template import claim_template_names, render_claims
from tonnage.workloads.compute_domain import render_domain
from tonnage.workloads.service import render_placement_service


def create_deleted(
    observation: Observation, fleet: Fleet, planned: Iterable[Action]
) -> tuple[Apply, ...]:
    """Create what is missing of workloads that serve or once served, except for what `planned`
    creates anyway. What pods claim by comes first, since they do not start without it."""
    if not observation.deployments or not may_serve(observation):
        return ()
    missing = (
        *find_missing_claim_templates(observation, _render_claims(observation, fleet)),
        *_find_missing_services(observation),
    )
    applied = [_place(action) for action in planned if isinstance(action, Apply)]
    return tuple(action for action in missing if _place(action) not in applied)


def _place(action: Apply) -> tuple[str, str]:
    return action.kind.kind, action.body["metadata"]["name"]


def _find_missing_services(observation: Observation) -> Iterator[Apply]:
    if observation.service is None:
        yield from apply_if_changed(SERVICES, make_service(observation), None)
    existing = {child.name for child in observation.placement_services}
    for deployment in _sharing(observation):
        nodes = deployment.parallelism.nodes
        body = render_placement_service(owner_of(observation), deployment.placement, nodes)
        if body["metadata"]["name"] not in existing:
            yield from apply_if_changed(SERVICES, stamped(body), None)


def _sharing(observation: Observation) -> list[ChildDeployment]:
    """The Deployments that share the replicas; none where one has them all."""
    secondary = [one for one in observation.deployments if one.secondary]
    first = newest(observation.deployments)
    return [first, *secondary] if secondary and first and not first.secondary else []


def _render_claims(observation: Observation, fleet: Fleet) -> Iterator[Object]:
    """The ResourceClaimTemplates and ComputeDomains that the live workloads name. One whose pool
    offers its GPUs otherwise by now, or whose labels have changed, would have another name."""
    owner = owner_of(observation)
    for deployment in observation.deployments:
        named = claim_template_names(template_of(deployment.child.body))
        if not named:
            continue
        pools = {pool.name: pool for pool in fleet.pools()}
        pool = pools.get(pool_now(deployment, observation.pods, pools.values(), fleet))
        placement, devices = deployment.placement, deployment.parallelism.footprint.gpus_per_node
        bodies = [render_domain(owner, placement)]
        if pool is not None and pool.claim is not None:
            bodies.append(render_claims(owner, placement, pool.claim, devices))
        yield from (body for body in bodies if body["metadata"]["name"] in named)
