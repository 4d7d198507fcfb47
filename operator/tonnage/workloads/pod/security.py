"""Renders security contexts: as tight as each vendor's image and devices allow.

Both vendors: no capability, no privilege escalation, the runtime's seccomp profile, no service
account token, no host namespace.

- NVIDIA: not root; /dev/nvidia* is open to every user. With the other settings this meets the
  "restricted" Pod Security Standard. SGLang's image runs as root and meets "baseline".
- AMD: the image's user, which is root, without capabilities. The image has no other user, and the
  group that may open /dev/kfd and /dev/dri/renderD* differs from host to host, so that another user
  would work on some nodes only; AITER also writes kernels to its own package folder. This meets the
  "baseline" standard.

The root filesystem stays writable. vLLM's sockets and temporary files go to /tmp, AITER writes to
its package folder, and NVIDIA's container toolkit renews the linker's cache when it creates the
container.
"""

from typing import Any

from tonnage.catalog.model import Vendor
from tonnage.engines.defaults import load_defaults


def render_pod_security_context(vendor: Vendor, engine: str = "") -> dict[str, Any]:
    """User and groups, which some engines have of their own. A volume gets the group only where its
    root folder does not have it yet."""
    usual = load_defaults().security.run_as
    run_as = load_defaults().engine_security.engines.get(engine, usual)[vendor]
    context: dict[str, Any] = {
        "fsGroup": run_as.fs_group,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if run_as.run_as_user is not None:
        context |= {"runAsNonRoot": True, "runAsUser": run_as.run_as_user}
    if run_as.run_as_group is not None:
        context["runAsGroup"] = run_as.run_as_group
    if run_as.supplemental_groups:
        context["supplementalGroups"] = list(run_as.supplemental_groups)
    return context


def render_container_security_context() -> dict[str, Any]:
    """No privilege: the device plugins pass the devices to the container."""
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
