"""One copy of the model in the place that was chosen for it: all that a pod is rendered from."""

import math
from dataclasses import dataclass

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.model import Accelerator, Vendor
from tonnage.checkpoint.model import Checkpoint
from tonnage.placement.model import Option
from tonnage.render.defaults import defaults
from tonnage.render.model import Owner, RenderSettings
from tonnage.render.quantity import GIB


@dataclass(frozen=True, slots=True)
class Replica:
    """What is asked for, what the model is, and where it goes; `spec` has passed check_template."""

    owner: Owner
    spec: InferenceDeploymentSpec
    checkpoint: Checkpoint
    option: Option
    catalog: Catalog
    settings: RenderSettings

    @property
    def accelerator(self) -> Accelerator:
        """The device it runs on."""
        return self.option.accelerator

    @property
    def vendor(self) -> Vendor:
        """Who makes the device."""
        return self.accelerator.vendor

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.option.parallelism.gpus

    @property
    def vllm_version(self) -> str:
        """The vLLM release that the user wants, or the catalogue's default."""
        return self.catalog.release(self.spec.engine.vllm.version).version

    @property
    def model_gib(self) -> int:
        """Size of the weights in GiB, rounded up to the catalogue's step.

        Where nobody has measured the files it is what the memory calculation puts on all GPUs.
        """
        step = defaults().model_size_step_gib * GIB
        weights = self.checkpoint.weights_bytes or self.option.fit.account.weights_bytes * self.gpus
        return math.ceil(weights / step) * step // GIB
