"""A model split in a certain way by a certain release, and what to say when vLLM refuses it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tonnage.catalog.engine import EngineRelease
from tonnage.checkpoint.model import ModelShape
from tonnage.fit.matrix import Split
from tonnage.fit.model import EngineOptions, IllegalParallelism, Parallelism


@dataclass(frozen=True, slots=True)
class Layout:
    """The model, how it is split and run, and by which release."""

    shape: ModelShape
    parallelism: Parallelism
    options: EngineOptions
    release: EngineRelease

    @property
    def tensor(self) -> int:
        """Tensor-parallel ranks."""
        return self.parallelism.tensor

    @property
    def split(self) -> Split:
        """What a rank holds of each matrix; pipeline stages cut no matrix."""
        whole = self.options.enable_expert_parallel
        return Split(tensor=self.tensor, expert_parallel=whole)

    def with_tensor(self, size: int) -> "Layout":
        """The same model over so many ranks."""
        return replace(self, parallelism=replace(self.parallelism, tensor=size))

    def refuse(
        self, rule: str, why: str, passes: Callable[[int], bool], *others: str
    ) -> IllegalParallelism:
        """The refusal, with the degrees that pass this rule and what else would help."""
        degrees = [str(size) for size in self.release.tensor_parallel_sizes if passes(size)]
        ways = [*([f"TP {', '.join(degrees)}"] if degrees else []), *others]
        return IllegalParallelism(rule, f"{why}; {' or '.join(ways)} would pass" if ways else why)


def divides(count: int) -> Callable[[int], bool]:
    """Whether so many ranks share `count` things evenly."""
    return lambda size: count % size == 0
