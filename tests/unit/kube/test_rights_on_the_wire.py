"""From the API server's answers to the metric: rights denied, and rights allowed again."""

from kubernetes.aio.client import ApiClient, Configuration
from prometheus_client import CollectorRegistry, generate_latest

from tests.support.foreign.scripted_server import Answer, serving
from tonnage.controller.metrics.components import RightsCollector
from tonnage.kube.client import AioKubeApi
from tonnage.kube.kinds import DEPLOYMENTS
from tonnage.kube.protocol import ForbiddenError
from tonnage.kube.rights import PermissionTracker, Right
from tonnage.kube.throttle import TokenBucket
from tonnage.kube.transport import Transport

BODY = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "n"}}


def denial(verb: str) -> Answer:
    message = (
        f'deployments.apps "d" is forbidden: User "system:serviceaccount:a:b" cannot {verb}'
        ' resource "deployments" in API group "apps" in the namespace "n"'
    )
    return Answer(403, {"kind": "Status", "message": message})


QUOTA = Answer(
    403, {"kind": "Status", "message": 'deployments.apps "d" is forbidden: exceeded quota: q'}
)


async def rights_after(*answers: Answer) -> tuple[dict[str, float], list[Right | None]]:
    """The metric after an apply for each answer, and the rights that its errors named."""
    rights, named = PermissionTracker(), []
    async with serving(*answers) as server, ApiClient(Configuration(host=server.url)) as client:
        transport = Transport(client, lambda *_: None, rights)
        bucket = TokenBucket(1000, 1000)
        api = AioKubeApi(transport, before_write=lambda: 30.0, bucket=bucket)
        for _ in answers:
            try:
                await api.apply(DEPLOYMENTS, BODY)
            except ForbiddenError as error:
                named.append(error.right)
    registry = CollectorRegistry()
    registry.register(RightsCollector(rights.missing))
    lines = generate_latest(registry).decode().splitlines()
    values = (line.split() for line in lines if not line.startswith("#"))
    return {name.partition("{")[2]: float(value) for name, value in values}, named


async def test_a_denied_patch_is_missing_until_a_patch_succeeds() -> None:
    patch = Right("patch", "apps", "deployments", "n")
    samples, named = await rights_after(denial("patch"))
    assert named == [patch]
    assert samples == {'resource="deployments",verb="patch"}': 1.0}
    samples, _ = await rights_after(denial("patch"), Answer())
    assert list(samples.values()) == [0.0]


async def test_a_patch_of_an_existing_object_does_not_prove_the_right_to_create() -> None:
    samples, named = await rights_after(denial("create"), Answer(200))
    assert [right.verb for right in named if right] == ["create"]
    assert list(samples.values()) == [1.0]
    samples, _ = await rights_after(denial("create"), Answer(201))
    assert list(samples.values()) == [0.0]


async def test_a_quota_denies_no_right() -> None:
    samples, named = await rights_after(QUOTA)
    assert (samples, named) == ({}, [None])
