"""Prints what vLLM's own LoRA layers allocate for each layout on standard input, one a line.

Runs in an environment that has vLLM. Input and output are lines of JSON: a layout with its
`config`; the bytes of the buffers of rank 0 by layer, or vLLM's `error`.
"""

import gc
import json
import sys
import tempfile
from pathlib import Path

import meta_device  # isort: skip - the stand-ins come before vLLM
import torch
from vllm.config import set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.lora.worker_manager import LRUCacheWorkerLoRAManager
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.utils.torch_utils import set_default_torch_dtype

_FILLED = {
    "DeepseekV4ForCausalLM": {
        "rms_norm_eps": 1e-6,
        "hc_eps": 1e-6,
        "hc_sinkhorn_iters": 20,
        "swiglu_limit": 10.0,
        "compress_rope_theta": 160000.0,
        "hidden_act": "silu",
        "norm_topk_prob": True,
        "scoring_func": "sqrtsoftplus",
        "routed_scaling_factor": 1.5,
    },
    "GptOssForCausalLM": {"rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0}},
    "MiniMaxM2ForCausalLM": {"scoring_func": "sigmoid"},
    "Qwen3VLMoeForConditionalGeneration": {"norm_topk_prob": True},
}
"""Fields of published configs that some records of models.jsonl leave out, without influence on
sizes, by class."""


def main() -> None:
    for line in sys.stdin:
        try:
            answer = {"layers": measure(json.loads(line))}
        except Exception as error:  # noqa: BLE001 - vLLM refuses a layout by any of them
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        gc.collect()
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def measure(layout: dict) -> dict[str, int]:
    """Bytes by the last part of a layer's name."""
    with tempfile.TemporaryDirectory() as folder:  # processors of images read it again
        config = fill(layout["config"])
        (Path(folder) / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return build(layout, folder)


def build(layout: dict, folder: str) -> dict[str, int]:
    engine = EngineArgs(
        model=folder,
        skip_tokenizer_init=True,
        load_format="dummy",
        max_model_len=1024,
        distributed_executor_backend="mp",
        enforce_eager=True,
        enable_lora=True,
        tensor_parallel_size=layout["tensorParallelSize"],
        pipeline_parallel_size=layout["pipelineParallelSize"],
        enable_expert_parallel=layout["enableExpertParallel"],
        max_loras=layout["maxLoras"],
        max_lora_rank=layout["maxLoraRank"],
        fully_sharded_loras=layout["fullyShardedLoras"],
        lora_target_modules=layout["targetModules"] or None,
    ).create_engine_config()
    stages = layout["pipelineParallelSize"]
    meta_device.set_groups(layout["tensorParallelSize"], stages, layout["stage"])
    with (
        set_current_vllm_config(engine),
        set_default_torch_dtype(engine.model_config.dtype),
        torch.device("meta"),
        meta_device.on_meta(),
    ):
        model = initialize_model(vllm_config=engine)
        workers = LRUCacheWorkerLoRAManager(engine, torch.device("meta"), model.embedding_modules)
        workers.create_lora_manager(model, engine)
    return sum_by_layer(workers._adapter_manager.modules)


def fill(config: dict) -> dict:
    filled = json.loads(json.dumps(config))
    text = filled.get("text_config", filled)
    for name, value in _FILLED.get(config["architectures"][0], {}).items():
        text[name] = {**value, **text.get(name, {})} if isinstance(value, dict) else value
    return filled


def sum_by_layer(modules: dict) -> dict[str, int]:
    """Bytes of the wrappers' own tensors; shared memory counts once."""
    seen: set[int] = set()
    sizes: dict[str, int] = {}
    for name, module in modules.items():
        for attribute, value in vars(module).items():
            if attribute in ("base_layer", "punica_wrapper"):
                continue
            for tensor in tensors(value):
                storage = tensor.untyped_storage()
                if storage._cdata not in seen:
                    seen.add(storage._cdata)
                    layer = name.rpartition(".")[2]
                    sizes[layer] = sizes.get(layer, 0) + storage.nbytes()
    return sizes


def tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors(item)


if __name__ == "__main__":
    main()
