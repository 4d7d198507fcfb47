"""Whether a refusal of pods is about the GPUs of one pool."""

import pytest

from tonnage.reconcile.observation.pods.refusal import exceeded_resources, refuses_every_pool

QUOTA = (
    'pods "x" is forbidden: exceeded quota: quota, requested: {requested}, used: a=0, limited: a=0'
)
GPUS = "requests.nvidia.com/gpu=1"


@pytest.mark.parametrize(
    ("message", "want"),
    [
        (QUOTA.format(requested=GPUS), False),
        (QUOTA.format(requested=f"requests.cpu=3,{GPUS}"), False),
        (QUOTA.format(requested="requests.cpu=3,requests.memory=17Gi"), True),
        (QUOTA.format(requested="requests.amd.com/gpu=1"), True),
        (QUOTA.format(requested="pods=1"), True),
        ("failed quota: quota: must specify limits.memory for: vllm", True),
        ("error looking up service account chat/models: not found", True),
        ('violates PodSecurity "restricted:latest": runAsNonRoot != true', False),
        ("admission webhook denied the request: no", False),
        ("", False),
    ],
)
def test_a_refusal_that_hits_every_pool(message: str, want: bool) -> None:
    assert refuses_every_pool(message, "nvidia.com/gpu") is want


def test_resources_have_no_prefix() -> None:
    requested = "limits.cpu=1,requests.nvidia.com/gpu=1,requests.storage=2"
    want = {"cpu", "nvidia.com/gpu", "storage"}
    assert exceeded_resources(QUOTA.format(requested=requested)) == want
    assert exceeded_resources("no quota") == frozenset()
