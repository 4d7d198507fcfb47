"""The settings of the operator by which it renders pods, for commands that render as it does."""

import argparse
import os
from typing import Final

from tonnage.engines.image_mirrors import Mirrors, parse_mirrors
from tonnage.engines.inputs import BASELINE, PRIVILEGED, RenderSettings

_MIRRORS_VARIABLE: Final = "TONNAGE_REGISTRY_MIRRORS"
_POD_SECURITY_VARIABLE: Final = "TONNAGE_POOL_POD_SECURITY"


def add_render_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the settings of the operator."""
    parser.add_argument(
        "--registry-mirrors",
        type=read_mirrors,
        default=os.environ.get(_MIRRORS_VARIABLE) or "",
        metavar="PREFIX=MIRROR,...",
        help="the registry mirrors that the operator has, so that images are those of its pods"
        f" (env {_MIRRORS_VARIABLE}; default: none)",
    )
    parser.add_argument(
        "--pool-pod-security",
        choices=(BASELINE, PRIVILEGED),
        default=os.environ.get(_POD_SECURITY_VARIABLE) or BASELINE,
        help="the Pod Security Standard that the operator has for podTemplates of AcceleratorPools"
        f" (env {_POD_SECURITY_VARIABLE}; default: {BASELINE})",
    )


def read_render_settings(options: argparse.Namespace, hf_endpoint: str | None) -> RenderSettings:
    """The settings by the parsed arguments and the operator's endpoint of the Hub."""
    privileged = options.pool_pod_security == PRIVILEGED
    return RenderSettings(hf_endpoint, options.registry_mirrors, privileged_pools=privileged)


def read_mirrors(text: str) -> Mirrors:
    """Read the value of the flag."""
    try:
        return parse_mirrors(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
