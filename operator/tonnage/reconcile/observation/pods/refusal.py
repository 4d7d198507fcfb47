"""Read from the API server's refusal of pods whether pods for another pool are refused as well.

`exceeded quota: NAME, requested: requests.nvidia.com/gpu=1, used: ..., limited: ...` lists the
resources of one quota that are exceeded. Source: apiserver pkg/admission/plugin/resourcequota
(controller.go, checkRequest).
"""

import re
from typing import Final

_EXCEEDED: Final = re.compile(r"exceeded quota: [^,]+, requested: ([^ ]+), used: ")
_OF_EACH_POD: Final = (
    "failed quota: ",  # a limit or request that the namespace demands of every container
    "error looking up service account ",
)


def exceeded_resources(message: str) -> frozenset[str]:
    """The resources whose quota is exceeded, such as nvidia.com/gpu; none if it is no quota."""
    exceeded = _EXCEEDED.search(message)
    if exceeded is None:
        return frozenset()
    keys = (part.partition("=")[0] for part in exceeded[1].split(","))
    return frozenset(key.removeprefix("requests.").removeprefix("limits.") for key in keys)


def refuses_every_pool(message: str, resource: str) -> bool:
    """Whether pods of any pool are refused alike. `resource` is that of the pool's GPUs: only its
    quota leaves pools with other GPUs. Other causes may depend on the pool, such as the devices of
    a vendor that a Pod Security level forbids."""
    resources = exceeded_resources(message)
    if resources:
        return resource not in resources
    return any(text in message for text in _OF_EACH_POD)
