"""Models that are to run on a device in a certain way, for tests of compatibility."""

from dataclasses import dataclass, field, replace
from typing import Any, Final

from tonnage.catalog.load import load_catalog
from tonnage.catalog.model import Accelerator
from tonnage.checkpoint.model import Checkpoint
from tonnage.checkpoint.shape import parse_config
from tonnage.fit.legality.rule_matching import Subject, describe_subject
from tonnage.fit.model import EngineOptions

CATALOG: Final = load_catalog()

LLAMA: Final[dict[str, Any]] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
EXPERTS: Final[dict[str, Any]] = {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
LATENT: Final[dict[str, Any]] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
SPARSE: Final[dict[str, Any]] = {
    **LATENT,
    "architectures": ["DeepseekV32ForCausalLM"],
    "model_type": "deepseek_v32",
    "index_n_heads": 64,
    "index_head_dim": 128,
    "index_topk": 2048,
}

_INT: Final = {"num_bits": 8, "type": "int", "strategy": "channel"}
_FLOAT: Final = {"num_bits": 8, "type": "float", "strategy": "channel"}


def compressed(weights: dict[str, Any], activations: dict[str, Any] | None) -> dict[str, Any]:
    """A quantization_config of compressed-tensors."""
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}


FP8: Final = {"quant_method": "fp8"}
BLOCK_FP8: Final = {"quant_method": "fp8", "weight_block_size": [128, 128]}
QUARK_FP8: Final = {
    "quant_method": "quark",
    "global_quant_config": {
        "weight": {"dtype": "fp8_e4m3"},
        "input_tensors": {"dtype": "fp8_e4m3"},
    },
}
NVFP4: Final = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
MXFP4: Final = {"quant_method": "mxfp4"}
MXFP8: Final = {"quant_method": "mxfp8"}
GPTQ: Final = {"quant_method": "gptq", "bits": 4, "group_size": 128}
AWQ: Final = {"quant_method": "awq", "bits": 4, "group_size": 128}
W8A8: Final = compressed(_INT, _INT)
W8A16: Final = compressed(_INT, None)
W4A8: Final = compressed({**_INT, "num_bits": 4, "group_size": 128}, _FLOAT)
W4A16: Final = compressed({**_INT, "num_bits": 4, "group_size": 128}, None)


@dataclass(frozen=True)
class Example:
    """A model (fields of config.json in addition to LLAMA's), on a device, with engine options.

    `architecture` is the name of another model class of the same shape.
    """

    on: str
    model: dict[str, Any] = field(default_factory=dict)
    stored: dict[str, Any] | None = None
    version: str = CATALOG.default_release
    kv_cache_dtype: str = "auto"
    quantization: str = "auto"
    architecture: str | None = None
    uncounted: tuple[str, ...] = ()
    adapters: bool = False
    cuda_loader: bool = False

    @property
    def checkpoint(self) -> Checkpoint:
        """The model."""
        stored = {} if self.stored is None else {"quantization_config": self.stored}
        shape = parse_config({**LLAMA, **self.model, **stored})
        return Checkpoint(replace(shape, architecture=self.architecture or shape.architecture))

    @property
    def accelerator(self) -> Accelerator:
        """The device."""
        return CATALOG.accelerator(self.on)

    @property
    def options(self) -> EngineOptions:
        """How it is to be run."""
        return EngineOptions(
            f"v{self.version}",
            8192,
            kv_cache_dtype=self.kv_cache_dtype,
            quantization=self.quantization,
            uncounted=self.uncounted,
            enable_lora=self.adapters,
            cuda_loader=self.cuda_loader,
        )

    @property
    def subject(self) -> Subject:
        """What rules see of it."""
        return describe_subject(self.checkpoint.shape, self.accelerator, self.options, CATALOG)
