"""Compiles the Mamba 2 kernels of vLLM with all processors, before a case starts.

vLLM tries some sixty settings of these kernels at its first step, and Triton compiles them one
after the other: minutes for each shape of a model, on one processor. Here each process compiles
its share into Triton's cache, which vLLM then reads; vLLM still times all settings and chooses.
"""

import contextlib
import logging
import os
import time
import traceback
from types import SimpleNamespace
from typing import Any, Final

Config = dict[str, Any]
_LIMIT_SECONDS: Final = 60


def mamba_shape(config: Config) -> tuple[int, ...] | None:
    """What the kernels are compiled for, by a config.json in the words of Nemotron-H; None for
    models without Mamba 2 layers."""
    fields = ("mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "chunk_size")
    return tuple(config[name] for name in fields) if config.keys() >= set(fields) else None


def compile_mamba_kernels(shape: tuple[int, ...], environment: dict[str, str]) -> None:
    """Fork a process for each processor, and wait for all, a minute at most.

    What they do not compile, the case compiles itself. Call it where no GPU is in use yet.
    """
    number_of_processes = os.cpu_count() or 1
    children = set()
    for number in range(number_of_processes):
        child = os.fork()
        if child == 0:
            _compile_share_in_child(shape, environment, number, number_of_processes)
        children.add(child)
    end = time.monotonic() + _LIMIT_SECONDS
    while children and time.monotonic() < end:
        children -= {child for child in children if os.waitpid(child, os.WNOHANG)[0]}
        time.sleep(0.05)  # waitpid takes no time limit
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, 9)
        os.waitpid(child, 0)


def _compile_share_in_child(
    shape: tuple[int, ...], environment: dict[str, str], number: int, of: int
) -> None:
    try:
        os.environ.update(environment)
        logging.disable(logging.WARNING)  # vLLM warns of settings that do not fit the GPU
        import torch
        from triton.runtime.autotuner import Autotuner

        settings_of = Autotuner.prune_configs

        def share(self: Any, *args: Any) -> Any:
            settings = settings_of(self, *args)
            return settings[number::of] or settings[:1]

        Autotuner.prune_configs = share
        for state in (torch.bfloat16, torch.float32):
            run_kernels(shape, torch.device("cuda"), state)
        os._exit(0)
    except BaseException:  # noqa: BLE001  the child may not return into the parent's loop
        traceback.print_exc()
    finally:
        os._exit(1)


def run_kernels(shape: tuple[int, ...], device: Any, state: Any) -> None:
    """Run vLLM's own warm-up of a Mamba 2 layer; `state` is the torch dtype of its state."""
    import torch
    from vllm.model_executor.layers.mamba.mamba_mixer2 import MambaMixer2

    heads, head_dim, groups, state_size, chunk = shape
    layer = SimpleNamespace(
        _ssd_kernels_warmed_up=False,
        num_heads=heads,
        tp_size=1,
        n_groups=groups,
        head_dim=head_dim,
        ssm_state_size=state_size,
        model_config=SimpleNamespace(get_mamba_chunk_size=lambda: chunk),
        get_state_dtype=lambda: (torch.bfloat16, state),
        A=-torch.ones(heads, dtype=torch.float32, device=device),
        D=torch.ones(heads, dtype=torch.bfloat16, device=device),
        dt_bias=torch.ones(heads, dtype=torch.bfloat16, device=device),
        prefix="kernels",
    )
    MambaMixer2._warmup_ssd_kernels(layer, torch.empty(1, dtype=torch.bfloat16, device=device))
