"""LoRA adapters in vLLM: which model classes take them, and which of their layers get buffers."""

from collections.abc import Mapping
from datetime import date
from functools import lru_cache

from tonnage.catalog.data_files import Entry, PositiveInt, read_data_file
from tonnage.catalog.model import Vendor


class AdaptedClass(Entry):
    """How the layers of a model class differ from those of most classes.

    `names` are vLLM's names of layers by the usual one, `one_slice` the fused layers with a single
    A, `separate` those that the class does not fuse, `unwrapped` the layers without buffers. With
    `own_gate` the gate of the attention's output is a layer of its own, with `experts_3d` gate and
    up projection of experts are one matrix.
    """

    names: Mapping[str, str] = {}
    one_slice: frozenset[str] = frozenset()
    separate: frozenset[str] = frozenset()
    unwrapped: frozenset[str] = frozenset()
    own_gate: bool = False
    experts_3d: bool = False


class EmbeddingClasses(Entry):
    """Classes with buffers for both ends of the model, or for one of them."""

    both: frozenset[str]
    embed_tokens: frozenset[str]
    lm_head: frozenset[str]


class LoraSupport(Entry):
    """lora.yaml, which explains each field and names its source."""

    compiled: date
    ranks: tuple[PositiveInt, ...]
    largest_head_vocabulary: PositiveInt
    target_modules_since: str
    patterns_since: str
    supported: frozenset[str]
    cuda_only: frozenset[str]
    embeddings: EmbeddingClasses
    language_models: Mapping[str, str]
    headless: frozenset[str]
    classes: Mapping[str, AdaptedClass]

    def takes_adapters(self, architecture: str, vendor: Vendor) -> bool:
        """Whether vLLM loads adapters for the class on devices of the vendor."""
        if vendor is Vendor.NVIDIA and architecture in self.cuda_only:
            return True
        return architecture in self.supported

    def layers_of(self, architecture: str) -> AdaptedClass:
        """What is special about the layers of the class."""
        return self.classes.get(architecture, AdaptedClass())

    def embedding_layers(
        self, architecture: str, model_type: str, *, multimodal: bool
    ) -> frozenset[str]:
        """The ends of the model with buffers: `embed_tokens`, `lm_head`, both or none."""
        listed = self.embeddings
        if multimodal and architecture not in listed.both and architecture not in self.headless:
            architecture = self.language_models.get(model_type, architecture)
        layers = (
            ("embed_tokens", listed.both | listed.embed_tokens),
            ("lm_head", listed.both | listed.lm_head),
        )
        return frozenset(name for name, classes in layers if architecture in classes)


@lru_cache(maxsize=1)
def load_lora_support() -> LoraSupport:
    """Loads this package's data once.

    Raises pydantic.ValidationError for an invalid data file.
    """
    return LoraSupport.model_validate(read_data_file("lora.yaml"))
