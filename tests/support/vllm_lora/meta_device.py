"""Lets vLLM's CPU build construct models as on an H200, on torch's meta device.

Tensors there have a shape and a type and no memory, so no GPU, weights or other processes are
needed. Platform, process groups, compiled kernels and streams are stand-ins; model classes and
LoRA layers are vLLM's own. Runs in an environment that has vLLM; import it before vllm.
"""

import os
import sys
import types

import torch
from torch.overrides import TorchFunctionMode

os.environ |= {
    "CUDA_VISIBLE_DEVICES": "",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
    "VLLM_USE_DEEP_GEMM": "0",
}


class _Kernels(types.ModuleType):
    """A compiled extension: every function of it exists, and is never called for its result."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: True


for _name in (
    "vllm._C_stable_libtorch",
    "vllm._moe_C_stable_libtorch",
    "vllm.vllm_flash_attn",
    "vllm.vllm_flash_attn.flash_attn_interface",
):
    sys.modules[_name] = _Kernels(_name)

_imported = False
_registered = torch._ops._OpNamespace.__getattr__


def _find_operator(namespace, name):
    compiled = namespace.name in ("_C", "_moe_C", "_C_cache_ops")
    if compiled and (_imported or "supports" in name):
        return lambda *_, **__: True
    return _registered(namespace, name)


torch._ops._OpNamespace.__getattr__ = _find_operator

import vllm.platforms
from vllm.platforms.cuda import NonNvmlCudaPlatform
from vllm.platforms.interface import DeviceCapability


class _H200(NonNvmlCudaPlatform):
    @classmethod
    def get_device_capability(cls, device_id=0):
        return DeviceCapability(9, 0)

    @classmethod
    def get_device_name(cls, device_id=0):
        return "NVIDIA H200"

    @classmethod
    def get_device_total_memory(cls, device_id=0):
        return 141 * 2**30

    @classmethod
    def is_fully_connected(cls, physical_device_ids):
        return True

    @classmethod
    def num_compute_units(cls, device_id=0):
        return 132

    @classmethod
    def device_count(cls):
        return 8

    @classmethod
    def get_punica_wrapper(cls):
        return "vllm.lora.punica_wrapper.punica_cpu.PunicaWrapperCPU"


vllm.platforms._current_platform = _H200()

import vllm.triton_utils


class _TritonConfig:
    def __init__(self, kwargs=None, num_warps=4, num_stages=2, **_):
        self.kwargs, self.num_warps, self.num_stages = kwargs, num_warps, num_stages


vllm.triton_utils.triton.Config = _TritonConfig

import vllm.distributed.parallel_state as parallel_state
import vllm.lora.layers.fused_moe as fused_moe
import vllm.model_executor.layers.fused_moe.expert_map_manager as expert_maps
import vllm.model_executor.layers.fused_moe.oracle.mxfp4 as mxfp4
import vllm.model_executor.layers.quantization.mxfp4 as mxfp4_layers
import vllm.model_executor.layers.sparse_attn_indexer as sparse_attn_indexer
import vllm.model_executor.models.registry as registry
from vllm.model_executor.layers.fused_moe.experts.lora_experts_mixin import (
    LoRAExpertsMixin,
)
from vllm.model_executor.layers.fused_moe.modular_kernel import (
    FusedMoEKernelModularImpl,
)

registry._run_in_subprocess = lambda function: function()
sparse_attn_indexer.has_deep_gemm = lambda: True
for _manager in vars(expert_maps).values():
    if hasattr(_manager, "get_compressed_map_string"):
        _manager.get_compressed_map_string = lambda _: (
            ""
        )  # reads the values of a tensor to log them


class _Stream:
    def __init__(self, *_, **__):
        pass


torch.cuda.Stream = torch.cuda.Event = _Stream
torch.cuda.current_stream = _Stream
torch.cuda.current_device = lambda: 0


class _ExpertMethod:
    """The quantisation method of experts after loading, with a kernel that takes adapters."""

    is_monolithic = False
    supports_internal_mk = True

    class moe_kernel:  # noqa: N801 - vLLM's name
        impl = object.__new__(FusedMoEKernelModularImpl)
        fused_experts = object.__new__(LoRAExpertsMixin)
        supports_lora = staticmethod(lambda: True)


_wrap_experts = fused_moe.FusedMoEWithLoRA.__init__


def _wrap_unloaded_experts(self, base_layer):
    routed = base_layer.routed_experts
    routed._modules.pop("quant_method", None)
    routed.__dict__["quant_method"] = _ExpertMethod
    routed._ensure_moe_quant_config_init = lambda: None
    base_layer._replace_quant_method = lambda _: None
    _wrap_experts(self, base_layer)


fused_moe.FusedMoEWithLoRA.__init__ = _wrap_unloaded_experts
fused_moe.FusedMoEWithLoRA.set_mapping = fused_moe.BaseLayerWithLoRA.set_mapping
fused_moe.FusedMoEModularMethod = lambda *_: None

_round_up = mxfp4.mxfp4_round_up_hidden_size_and_intermediate_size


def _round_up_for_triton(backend, *sizes, **options):
    """The images have triton_kernels, without which vLLM falls back to Marlin's sizes."""
    if backend is mxfp4.Mxfp4MoeBackend.MARLIN:
        backend = mxfp4.Mxfp4MoeBackend.TRITON_UNFUSED
    return _round_up(backend, *sizes, **options)


for _module in (mxfp4, mxfp4_layers):
    _module.mxfp4_round_up_hidden_size_and_intermediate_size = _round_up_for_triton


class _OnMeta(TorchFunctionMode):
    """Puts tensors that name a CUDA device on the meta device."""

    def __torch_function__(self, function, _types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        device = kwargs.get("device")
        if isinstance(device, int) or str(device).startswith("cuda"):
            kwargs["device"] = torch.device("meta")
        return function(*args, **kwargs)


class _Group:
    """A process group of `size` ranks, of which this process is `rank`."""

    def __init__(self, size, rank=0):
        self.world_size, self.rank, self.rank_in_group, self.local_rank = size, rank, rank, rank
        self.ranks = list(range(size))
        self.first_rank, self.last_rank = 0, size - 1
        self.is_first_rank, self.is_last_rank = rank == 0, rank == size - 1
        self.cpu_group = self.device_communicator = self.mq_broadcaster = None
        self.device_group = types.SimpleNamespace(size=lambda: size, rank=lambda: rank)
        self.device, self.unique_name = torch.device("meta"), "stand-in"
        self.use_device_communicator = False
        self.next_rank, self.prev_rank = (rank + 1) % size, (rank - 1) % size


def set_groups(tensor, stages=1, stage=0):
    """Make this process rank 0 of `tensor` ranks of a pipeline stage."""
    for name in ("_TP", "_EP", "_EPLB"):
        setattr(parallel_state, name, _Group(tensor))
    parallel_state._PP = _Group(stages, stage)
    parallel_state._WORLD = _Group(tensor * stages)
    for name in ("_DP", "_PCP", "_DCP"):
        setattr(parallel_state, name, _Group(1))


def on_meta():
    """The mode in which models are constructed."""
    return _OnMeta()


_imported = True
