"""Makes a LoRA adapter of the tiny Llama in the folder that is its argument.

Runs in an environment that has vLLM. The second argument seeds its weights.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

RANK, HIDDEN, LAYERS = 8, 256, 2
OUTPUTS = {"q_proj": 256, "v_proj": 128}


def main(folder: str, seed: str) -> None:
    """Write config and weights, as PEFT does."""
    torch.manual_seed(int(seed))
    tensors = {}
    for layer in range(LAYERS):
        for name, outputs in OUTPUTS.items():
            prefix = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            tensors[f"{prefix}.lora_A.weight"] = torch.randn(RANK, HIDDEN)
            tensors[f"{prefix}.lora_B.weight"] = torch.randn(outputs, RANK)
    Path(folder).mkdir(parents=True)
    save_file(tensors, f"{folder}/adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "r": RANK,
        "lora_alpha": 2 * RANK,
        "target_modules": sorted(OUTPUTS),
        "bias": "none",
    }
    (Path(folder) / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
