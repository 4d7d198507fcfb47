"""The models of a day: those of tests/data/configs, and what a replica of one can do."""

from functools import cache
from typing import Final

from tests.support.engines.shapes import load_shape
from tests.support.in_memory.cluster import WORLD, Hub
from tests.support.load.replica_capacity import ReplicaCapacity, replica_capacity
from tonnage.api.model import HuggingFaceSource
from tonnage.checkpoint.lookup import ModelAnswer
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.model import EngineOptions, Parallelism

MAX_MODEL_LEN: Final = 8192
REQUESTS: Final = {"maxModelLen": MAX_MODEL_LEN, "inputTokens": 2000, "outputTokens": 500}
"""The workload of objects that follow their load; such are all requests for them."""


class Shelf(Hub):
    """A Hub with these models, read once each."""

    def lookup(self, source: HuggingFaceSource, token: str | None, wake: object) -> ModelAnswer:
        return read_checkpoint(source.repo)


@cache
def read_checkpoint(model: str) -> Checkpoint:
    """The facts of a model."""
    return Checkpoint(load_shape(model))


@cache
def capacity_of(model: str, accelerator: str, gpus: int) -> ReplicaCapacity:
    """One replica of the model on so many GPUs, for these requests."""
    return replica_capacity(
        read_checkpoint(model),
        accelerator,
        Parallelism(gpus),
        EngineOptions(WORLD.catalog.default_release, MAX_MODEL_LEN),
        REQUESTS["inputTokens"],
        REQUESTS["outputTokens"],
    )
