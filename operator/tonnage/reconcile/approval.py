"""What a person approves, and whether a plan may be carried out (spec.approval: Manual).

Approved are terms: where replicas run, from which image and with which arguments. Terms that run
already need no approval, whatever they were approved by; so the plan in force is read off the
Deployment, and neither a new release of the operator nor a lost status asks anybody again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.names import VLLM_CONTAINER
from tonnage.fit.model import Parallelism
from tonnage.fleet.fleet import Fleet
from tonnage.kube.protocol import Object
from tonnage.placement.model import Decision
from tonnage.reconcile.actions import digest
from tonnage.reconcile.key import Key
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.place import Placed
from tonnage.reconcile.serving import newest, pool_now
from tonnage.render.names import placement_name
from tonnage.render.volumes import MODEL_VOLUME


@dataclass(frozen=True, slots=True)
class Terms:
    """What a replica is: its place, its image, its command line, the volume of its model.

    Not in it: how many there are, when they were restarted, and what of the pod decides neither
    what is served nor what it costs (labels, environment, probes, CPU).
    """

    pool: str
    accelerator: str
    parallelism: Parallelism
    image: str
    command: tuple[str, ...]
    arguments: tuple[str, ...]
    claim: str | None

    @property
    def hash(self) -> str:
        """The name by which the plan is approved; equal terms have equal ones everywhere."""
        return digest(
            {
                "pool": self.pool,
                "accelerator": self.accelerator,
                "tensorParallelSize": self.parallelism.tensor,
                "pipelineParallelSize": self.parallelism.pipeline,
                "image": self.image,
                "command": self.command,
                "arguments": self.arguments,
                "claim": self.claim,
            }
        )


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan that waits for a person: its terms, what was decided, and sentences about it.

    `change` is what it would change of what runs; `outdated` what has become of an approval of
    another plan, None where there is none.
    """

    key: Key
    terms: Terms
    placed: Placed
    change: str
    outdated: str | None

    def __str__(self) -> str:
        """What waits, and what to do."""
        outdated = f"{self.outdated}; " if self.outdated else ""
        return (
            f"{outdated}plan {self.terms.hash} waits for approval: {self.change}; approve it with"
            f" `kubectl tonnage approve {self.key.name} -n {self.key.namespace}`, or set"
            f" spec.approvedPlan: {self.terms.hash}"
        )


@dataclass(frozen=True, slots=True)
class Awaiting:
    """What was decided waits for a person, and nothing of it can be done before; what runs goes
    on as it is."""

    placed: Placed

    @property
    def decision(self) -> Decision:
        """Every pool judged."""
        return self.placed.decision


@dataclass(frozen=True, slots=True)
class Standing:
    """How an object stands with approval: the hash of the plan in force, and what waits."""

    plan: str | None = None
    proposal: Proposal | None = None


UNASKED: Final = Standing()
"""Nobody asked to approve anything."""


def terms_of(placed: Placed, deployment: Object) -> Terms:
    """The terms of a placement and the Deployment that was rendered for it."""
    option = placed.option
    place = option.pool.name, placement_name(option), option.parallelism
    return _read_terms(*place, deployment)


def terms_in_force(
    observation: Observation, spec: InferenceDeploymentSpec, fleet: Fleet
) -> Terms | None:
    """The terms of the Deployment that the replicas were told to run on last; None without one.

    Their pool is the one that its nodes are in by now, whatever its name was then.
    """
    current = newest(observation.deployments)
    if current is None:
        return None
    pools = fleet.pools(tolerations=spec.template.spec.tolerations)
    pool = pool_now(current, observation.pods, pools, fleet)
    return _read_terms(pool, current.placement, current.parallelism, current.child.body)


def is_approved(terms: Terms, spec: InferenceDeploymentSpec, in_force: Terms | None) -> bool:
    """Whether the terms run already, or are those that a person said yes to."""
    return terms == in_force or terms.hash == spec.approved_plan


def _read_terms(pool: str, accelerator: str, parallelism: Parallelism, deployment: Object) -> Terms:
    pod = deployment["spec"].get("template", {}).get("spec", {})
    container = _named(pod.get("containers"), VLLM_CONTAINER)
    claim = _named(pod.get("volumes"), MODEL_VOLUME).get("persistentVolumeClaim") or {}
    return Terms(
        pool=pool,
        accelerator=accelerator,
        parallelism=parallelism,
        image=container.get("image", ""),
        command=tuple(container.get("command") or ()),
        arguments=tuple(container.get("args") or ()),
        claim=claim.get("claimName"),
    )


def _named(items: list[Mapping[str, Any]] | None, name: str) -> Mapping[str, Any]:
    return next((item for item in items or [] if item.get("name") == name), {})
