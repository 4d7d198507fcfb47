"""Kinds that an administrator writes."""

from collections.abc import Mapping
from typing import Final

from tonnage.kube.kinds import (
    LIMIT_RANGES,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    RESOURCE_QUOTAS,
)
from tonnage.kube.protocol import Kind

SERVICE_ACCOUNTS: Final = Kind("", "v1", "ServiceAccount", "serviceaccounts")

ADMINISTERED: Final[Mapping[str, Kind]] = {
    kind.kind: kind
    for kind in (
        RESOURCE_QUOTAS,
        LIMIT_RANGES,
        NAMESPACES,
        SERVICE_ACCOUNTS,
        PERSISTENT_VOLUME_CLAIMS,
        PERSISTENT_VOLUMES,
    )
}
