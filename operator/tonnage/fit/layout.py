"""A model with its parallelism and release, and the refusal if vLLM does not accept it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tonnage.catalog.vllm.releases import EngineRelease
from tonnage.checkpoint.model import ModelShape
from tonnage.fit.model import EngineOptions, IllegalParallelism, Parallelism
from tonnage.fit.weights.matrix import Sharding


@dataclass(frozen=True, slots=True)
class Layout:
    """The model, its parallelism, its options and the release."""

    shape: ModelShape
    parallelism: Parallelism
    options: EngineOptions
    release: EngineRelease

    @property
    def tensor(self) -> int:
        """Tensor-parallel ranks."""
        return self.parallelism.tensor

    @property
    def sharding(self) -> Sharding:
        """The part of each matrix that a rank holds; pipeline stages do not divide matrices."""
        return Sharding(tensor=self.tensor, expert_parallel=self.options.enable_expert_parallel)

    def with_tensor(self, size: int) -> "Layout":
        """The same model with another tensor-parallel size."""
        return replace(self, parallelism=replace(self.parallelism, tensor=size))

    def refuse(
        self, rule: str, why: str, passes: Callable[[int], bool], *alternatives: str
    ) -> IllegalParallelism:
        """The refusal, with the tensor-parallel sizes that pass this rule and `alternatives`."""
        sizes = [str(size) for size in self.release.tensor_parallel_sizes if passes(size)]
        ways = [*([f"TP {', '.join(sizes)}"] if sizes else []), *alternatives]
        return IllegalParallelism(rule, f"{why}; {' or '.join(ways)} would pass" if ways else why)


def divides(count: int) -> Callable[[int], bool]:
    """A test whether a number of ranks divides `count` evenly."""
    return lambda size: count % size == 0
