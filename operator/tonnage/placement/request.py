"""The user's say in the choice of the pool, checked before any pool is looked at."""

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.catalog.catalog import Catalog, UnknownAcceleratorError, UnknownRuleError


def check_accelerators(spec: InferenceDeploymentSpec, catalog: Catalog) -> None:
    """Raise UnknownAcceleratorError for the first name in the allow-list that is no accelerator."""
    for position, name in enumerate(spec.placement.accelerators or ()):
        try:
            catalog.accelerator(name)
        except UnknownAcceleratorError as error:
            where = f"spec.placement.accelerators[{position}]"
            raise UnknownAcceleratorError(f"{where}: {error}") from None


def check_allowed_rules(spec: InferenceDeploymentSpec, catalog: Catalog) -> None:
    """Raise UnknownRuleError for the first name in `allow` that is no compatibility rule."""
    for position, name in enumerate(spec.placement.allow):
        try:
            catalog.rule(name)
        except UnknownRuleError as error:
            raise UnknownRuleError(f"spec.placement.allow[{position}]: {error}") from None
