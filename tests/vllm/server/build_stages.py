"""Builds the ranks of models as vLLM's own classes do, without weights, and prints their bytes.

The argument is JSON: a list of cases with `folder` (of config.json), `tensor`, `pipeline`, `data`.
The answer is the list of their lists: the bytes of parameters and buffers of the first rank of each
pipeline stage. The groups of ranks have the asked sizes, but no other process is in them.

Runs in an environment that has vLLM.
"""

import json
import sys
from typing import Any

import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.fused_moe.expert_map_manager import ExpertMapManager
from vllm.model_executor.model_loader.utils import initialize_model


class Group:
    """A group of ranks, of which this process is one."""

    local_rank = first_rank = 0
    device_communicator = None
    use_device_communicator = False

    def __init__(self, size: int, rank: int = 0) -> None:
        self.world_size = size
        self.rank_in_group = self._rank = rank
        self.ranks = list(range(size))
        self.is_first_rank = rank == 0
        self.is_last_rank = rank == size - 1
        self.device_group = self.cpu_group = self

    def size(self) -> int:
        """Ranks of the group, as torch asks for them."""
        return self.world_size

    def rank(self) -> int:
        """This process's rank, as torch asks for it."""
        return self._rank


def build(folder: str, tensor: int, pipeline: int, data: int, stage: int) -> int:
    """Bytes of the first rank of the stage."""
    config = configure(folder)
    parallel = config.parallel_config
    parallel.tensor_parallel_size, parallel.pipeline_parallel_size = tensor, pipeline
    parallel.data_parallel_size, parallel.enable_expert_parallel = data, data > 1
    groups = {
        "_WORLD": Group(tensor * pipeline * data),
        "_TP": Group(tensor),
        "_PP": Group(pipeline, stage),
        "_DP": Group(data),
        "_EP": Group(tensor * data),
        "_PCP": Group(1),
        "_DCP": Group(1),
    }
    for name, group in groups.items():
        setattr(parallel_state, name, group)
    with set_current_vllm_config(config, check_compile=False), torch.device("meta"):
        model = initialize_model(vllm_config=config)
    tensors = {id(one): one for one in (*model.parameters(), *model.buffers())}
    return sum(one.numel() * one.element_size() for one in tensors.values())


def configure(folder: str) -> VllmConfig:
    """vLLM's configuration for one GPU, whose parallelism is set afterwards: this machine has no
    GPUs to check it against."""
    return EngineArgs(
        model=folder,
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=4096,
        dtype="bfloat16",
    ).create_engine_config()


def prepare() -> None:
    """Set up torch and vLLM for models without weights: a log line would list a rank's experts."""
    torch.set_default_dtype(torch.bfloat16)
    ExpertMapManager.get_compressed_map_string = lambda self: "unknown"


def main(cases: list[dict[str, Any]]) -> None:
    """Print the bytes of each stage of each case."""
    prepare()
    stages = [[build(**case, stage=stage) for stage in range(case["pipeline"])] for case in cases]
    sys.stdout.write(json.dumps(stages) + "\n")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
