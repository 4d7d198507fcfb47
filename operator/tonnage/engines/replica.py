"""The inputs of a pod: one copy of the model in its chosen placement."""

import math
from dataclasses import dataclass

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.model import Accelerator, Vendor
from tonnage.checkpoint.model import Checkpoint
from tonnage.engines.defaults import load_defaults
from tonnage.engines.inputs import Owner, RenderSettings
from tonnage.engines.quantity import GIB
from tonnage.placement.model import Option


@dataclass(frozen=True, slots=True)
class Replica:
    """Spec, model and placement of a replica; `spec` has passed check_template."""

    owner: Owner
    spec: InferenceDeploymentSpec
    checkpoint: Checkpoint
    option: Option
    catalog: Catalog
    settings: RenderSettings

    @property
    def accelerator(self) -> Accelerator:
        """The accelerator that the replica runs on."""
        return self.option.accelerator

    @property
    def vendor(self) -> Vendor:
        """The vendor of the accelerator."""
        return self.accelerator.vendor

    @property
    def gpus(self) -> int:
        """GPUs of one of the replica's pods."""
        return self.option.parallelism.footprint.gpus_per_node

    @property
    def model_gib(self) -> int:
        """Size of the weights in GiB, rounded up to the catalogue's step."""
        step = load_defaults().model_size_step_gib * GIB
        return math.ceil(self.weights_bytes / step) * step // GIB

    @property
    def weights_bytes(self) -> int:
        """Size of the weight files; where that is unknown, of the weights that the memory fit puts
        on all GPUs."""
        gpus = self.option.parallelism.gpus
        return self.checkpoint.weights_bytes or self.option.fit.account.weights_bytes * gpus
