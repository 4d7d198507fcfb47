"""A model of a few kilobytes for the Hub of the tests, and how it is asked for."""

import json

from tests.support.foreign.hub_server import HubFile, safetensors_file
from tonnage.api.model import HuggingFaceSource, SecretKeyRef

TOKEN = "hf_SecretSecretSecret"
STRANGER = "hf_StrangerStranger"
REPO = "acme/tiny"

CONFIG = HubFile.of(
    json.dumps(
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "torch_dtype": "bfloat16",
            "num_hidden_layers": 2,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 1000,
            "max_position_embeddings": 4096,
            "tie_word_embeddings": False,
        }
    )
)
WEIGHTS = safetensors_file({"embed": ("BF16", [1000, 64]), "norm": ("F32", [64])})
SHARDS = {
    "model-00001-of-00002.safetensors": safetensors_file({"a": ("BF16", [10, 64])}),
    "model-00002-of-00002.safetensors": safetensors_file(
        {"b": ("F8_E4M3", [10, 64]), "c": ("BF16", [64])}
    ),
}


def source(repo: str = REPO, revision: str = "main", *, secret: bool = False) -> HuggingFaceSource:
    reference = SecretKeyRef(name="hf", key="token") if secret else None
    return HuggingFaceSource(repo=repo, revision=revision, token_secret_ref=reference)
