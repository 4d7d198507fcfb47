"""What SGLang itself chooses for layouts: its argument resolution and its KV cache configurator.

Reads layouts as JSON lines (`accuracy.sglang.SGLangLayout` with `config`, all of one architecture)
and writes their results. It runs in a Python that has torch for CPUs, transformers, and the
unpacked wheel of SGLang on its path; what asks a GPU is replaced, and packages of GPU kernels are
stubs. accuracy/records/sglang.jsonl was made so:

    pip download --no-deps sglang==0.5.23 && unzip sglang-*.whl -d SGLANG
    pip install --no-deps --target SGLANG orjson IPython traitlets gguf pynvml nvidia-ml-py \
        compressed-tensors
    PYTHONPATH=SGLANG python configure.py sm_90 81559 < layouts.jsonl

`make test-sglang` installs these packages (requirements/sglang.in) and compares layouts.
"""

import importlib.abc
import importlib.machinery
import json
import sys
import tempfile
import types
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import torch

GIB = 2**30
CAPABILITIES = {"sm_90": (9, 0), "sm_100": (10, 0), "gfx942": (9, 4), "gfx950": (9, 5)}
STUBS = frozenset(
    [
        "sgl_kernel",
        "flashinfer",
        "aiter",
        "deep_gemm",
        "deep_ep",
        "tvm_ffi",
        "cutlass",
        "cuda",
        "flash_attn",
        "timm",
        "scipy",
        "kernels",
        "soundfile",
        "petit_kernel",
        "zstandard",
        "torch_memory_saver",
        "triton_kernels",
    ]
)


class AnyClass(type):
    """A class of a kernel package: every attribute exists."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=name)


def any_attribute(name: str) -> Any:
    """An attribute of a stub: decorators return what they decorate."""
    if name.startswith("__"):
        raise AttributeError(name)
    if name.startswith("register_"):
        return lambda *given, **_: given[0] if callable(given[0]) else lambda each: each
    if name[0].isupper():
        return AnyClass(name, (), {"__init__": lambda *_args, **_fields: None})
    return MagicMock(name=name)


class StubFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports packages of GPU kernels as stubs."""

    def find_spec(self, name: str, _path: Any, _target: Any = None) -> Any:
        if name.split(".", maxsplit=1)[0] not in STUBS:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> Any:
        module: Any = types.ModuleType(spec.name)
        module.__path__ = []
        module.__version__ = "99.0.0"
        module.__getattr__ = any_attribute
        return module

    def exec_module(self, module: Any) -> None:
        """A stub has nothing to run."""


def pretend(arch: str, memory_mib: int) -> None:
    """Let torch report a GPU of that architecture and memory."""
    capability, cuda = CAPABILITIES[arch], torch.cuda
    is_amd = arch.startswith("gfx")
    torch.version.hip = "7.2.0" if is_amd else None
    torch.version.cuda = None if is_amd else "13.0"
    properties = types.SimpleNamespace(
        major=capability[0],
        minor=capability[1],
        multi_processor_count=132,
        total_memory=memory_mib << 20,
        gcnArchName=arch,
        name=arch,
        warp_size=64,
    )
    cuda.is_available = lambda: True
    cuda.device_count = lambda: 8
    cuda.current_device = lambda: 0
    cuda.get_device_capability = lambda *_, **__: capability
    cuda.get_device_name = lambda *_, **__: arch
    cuda.get_device_properties = lambda *_, **__: properties
    sys.meta_path.insert(0, StubFinder())
    from sglang.srt.utils import common

    common.get_nvgpu_memory_capacity = common.get_amdgpu_memory_capacity = lambda: memory_mib


def configure(layout: dict[str, Any]) -> dict[str, Any]:
    """The arguments that SGLang resolves, and the sizes of its pools."""
    # Only after torch has a GPU.
    from sglang.srt.arg_groups.overrides import model_config_of
    from sglang.srt.runtime_context import SpawnRanks, get_parallel, publish
    from sglang.srt.server_args import ServerArgs

    folder = Path(tempfile.mkdtemp())
    (folder / "config.json").write_text(json.dumps(layout["config"]))
    given = {
        "kv_cache_dtype": layout["kvCacheDtype"],
        "mem_fraction_static": layout.get("givenFraction"),
        "max_running_requests": layout.get("givenRequests"),
        "chunked_prefill_size": layout.get("givenChunk"),
        "context_length": layout.get("givenContext"),
    }
    arguments = ServerArgs(
        model_path=str(folder),
        tp_size=layout["tensorParallelSize"],
        pp_size=layout.get("pipelineParallelSize", 1),
        load_format="dummy",
        **{name: value for name, value in given.items() if value is not None},
    )
    arguments.resolve_once()
    resolved = arguments.resolved_dict()
    model = model_config_of(arguments)
    ranks = SpawnRanks(world_rank=0, gpu_id=0)
    publish(arguments, role="scheduler", hf_config=model.hf_config, ranks=ranks)
    group = types.SimpleNamespace(cpu_group=None)
    with get_parallel().override(world_group=group):
        sizes = pool_sizes(layout, arguments, model, resolved)
    chosen = {
        "memFractionStatic": resolved["mem_fraction_static"],
        "pageSize": resolved["page_size"],
        "chunkedPrefillSize": resolved["chunked_prefill_size"],
        "contextLength": model.context_len,
    }
    return {**chosen, **sizes}


def pool_sizes(layout: dict[str, Any], arguments: Any, model: Any, resolved: Any) -> dict[str, Any]:
    """The sizes of the pools with the memory that the layout leaves."""
    from sglang.srt.configs.model_config import AttentionArch
    from sglang.srt.distributed.utils import get_pp_indices
    from sglang.srt.mem_cache import kv_cache_configurator
    from sglang.srt.mem_cache.kv_cache_dtype import configure_kv_cache_dtype
    from sglang.srt.model_executor.model_runner_components.layer_setup import (
        ModelLayerInfo,
    )
    from sglang.srt.model_executor.model_runner_components.spec_aux_hidden_state import (
        SpecAuxHiddenStateConfig,
    )
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    free = (layout["freeBytes"] - layout["weightsBytes"]) / GIB
    kv_cache_configurator.get_available_gpu_memory = lambda *_, **__: free
    _, dtype = configure_kv_cache_dtype(
        server_args_kv_cache_dtype=resolved["kv_cache_dtype"],
        model=None,
        model_dtype=torch.bfloat16,
        is_draft_worker=False,
        is_dflash=False,
        speculative_draft_attention_backend="",
    )
    stages = layout.get("pipelineParallelSize", 1)
    stage = range(*get_pp_indices(model.num_hidden_layers, layout.get("stage", 0), stages))
    # The stages agree on the fewest tokens of all of them: these are the tokens of one.
    torch.distributed.all_reduce = lambda *_, **__: None
    configurator = kv_cache_configurator.KVCacheConfigurator(
        device="cuda",
        gpu_id=0,
        attn_dp_size=1,
        pp_size=stages,
        pp_group=None,
        model=None,
        model_config=model,
        server_args=arguments,
        kv_cache_dtype=dtype,
        model_dtype=torch.bfloat16,
        page_size=resolved["page_size"],
        sliding_window_size=model.sliding_window_size,
        spec_algorithm=SpeculativeAlgorithm.NONE,
        is_draft_worker=False,
        post_capture_kv_active=False,
        spec_aux_config=SpecAuxHiddenStateConfig(),
        is_hybrid_swa=model.is_hybrid_swa,
        is_hybrid_swa_compress=model.is_hybrid_swa_compress,
        use_mla_backend=model.attention_arch == AttentionArch.MLA,
        layer_info=ModelLayerInfo(
            start_layer=stage.start,
            end_layer=stage.stop,
            num_effective_layers=len(stage),
            swa_attention_layer_ids=_in_stage(model.swa_attention_layer_ids, stage),
            full_attention_layer_ids=_in_stage(model.full_attention_layer_ids, stage),
        ),
        forward_stream=None,
        req_to_token_pool=None,
        token_to_kv_pool_allocator=None,
        memory_pool_config=None,
    )
    config = configurator._resolve_memory_pool_config(layout["freeBytes"] / GIB)
    return {
        "kvCacheTokens": config.max_total_num_tokens,
        "windowTokens": config.swa_max_total_num_tokens,
        "maxRunningRequests": config.max_running_requests,
    }


def _in_stage(layers: list[int] | None, stage: range) -> list[int] | None:
    return None if layers is None else [layer for layer in layers if layer in stage]


def main() -> None:
    """Answer every layout; what SGLang raises is its answer."""
    pretend(sys.argv[1], int(sys.argv[2]))
    for line in sys.stdin:
        layout = json.loads(line)
        try:
            answer = configure(layout)
        except Exception as error:  # noqa: BLE001 - the refusal is the result
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        sys.stdout.write("\n" + json.dumps({"id": layout["id"], **answer}) + "\n")


if __name__ == "__main__":
    main()
