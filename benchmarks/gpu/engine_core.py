"""One start of vLLM's engine core, and the memory that its worker counts.

`vllm serve` runs the engine core in a process of its own; here it runs in this one, without the
HTTP server, with the same arguments and the same defaults.
"""

import json
import os
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks.gpu.speeds import measure_speeds
from benchmarks.gpu.weights import use_independent_weights


def configure(case: dict[str, Any]) -> Any:
    """vLLM's engine configuration for a case, with the defaults of `vllm serve`; writes the folder
    of its model. Raises what vLLM raises where it refuses."""
    os.environ.update(case["environment"])
    folder = Path(case["arguments"][0])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(case["config"]))
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.openai.cli_args import make_arg_parser
    from vllm.usage.usage_lib import UsageContext
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parsed = make_arg_parser(FlexibleArgumentParser()).parse_args(case["arguments"])
    parsed.model = parsed.model_tag
    return AsyncEngineArgs.from_cli_args(parsed).create_engine_config(
        usage_context=UsageContext.OPENAI_API_SERVER
    )


def start_and_measure(case: dict[str, Any]) -> dict[str, Any]:
    """Start the engine core and, for cases with speeds, send requests. Sizes are in bytes."""
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.executor.abstract import Executor

    seen: dict[str, Any] = {}
    _watch_worker(seen)
    config = configure(case)
    seen |= {
        "maxNumSeqs": config.scheduler_config.max_num_seqs,
        "maxNumBatchedTokens": config.scheduler_config.max_num_batched_tokens,
        "asyncScheduling": bool(config.scheduler_config.async_scheduling),
        "graphSizes": len(config.compilation_config.cudagraph_capture_sizes or ()),
        "graphMode": config.compilation_config.cudagraph_mode.name,
    }
    started = time.monotonic()
    try:
        core = EngineCore(config, Executor.get_class(config), log_stats=False)
    except Exception as error:  # noqa: BLE001  what vLLM refuses is a result, whatever it raises
        traceback.print_exc()
        return {"outcome": "refused", "cause": f"{type(error).__name__}: {error}"[:600]} | seen
    seen |= {"outcome": "started", "startSeconds": time.monotonic() - started}
    seen |= _describe_cache(core)
    if case["speeds"]:
        seen["speeds"] = measure_speeds(core, case["prompt"], config.model_config.get_vocab_size())
    return seen


def _watch_worker(seen: dict[str, Any]) -> None:
    """Keep what vLLM's worker counts, also where it refuses to start afterwards."""
    from vllm.v1.worker.gpu_worker import Worker

    use_independent_weights()
    determine, load, warm = (
        Worker.determine_available_memory,
        Worker.load_model,
        Worker.compile_or_warm_up_model,
    )

    def determine_and_keep(self: Any) -> Any:
        begun = time.monotonic()
        available = determine(self)
        seen["profileSeconds"] = time.monotonic() - begun
        seen["totalBytes"] = self.init_snapshot.total_memory
        seen["freeBytes"] = self.init_snapshot.free_memory
        seen["requestedBytes"] = int(self.requested_memory)
        seen["weightsBytes"] = int(self.model_runner.model_memory_usage)
        seen["activationBytes"] = int(self.peak_activation_memory)
        seen["nonTorchBytes"] = int(self.non_torch_memory)
        seen["graphEstimateBytes"] = int(self.cudagraph_memory_estimate)
        seen["kvCacheBytes"] = int(available)
        seen["modelRunner"] = type(self.model_runner).__module__
        return available

    def load_and_keep(self: Any, *args: Any, **kwargs: Any) -> None:
        begun = time.monotonic()
        load(self, *args, **kwargs)
        seen["loadSeconds"] = time.monotonic() - begun

    def warm_and_keep(self: Any) -> Any:
        import torch

        begun = time.monotonic()
        runner = self.model_runner
        capture = runner.capture_model

        def capture_and_keep(*args: Any, **kwargs: Any) -> int:
            taken = int(capture(*args, **kwargs))
            seen["graphBytes"] = taken
            return taken

        runner.capture_model = capture_and_keep
        times = warm(self)
        seen["warmSeconds"] = time.monotonic() - begun
        seen["freeAtEndBytes"], _ = torch.cuda.mem_get_info()
        return times

    Worker.determine_available_memory = determine_and_keep
    Worker.load_model = load_and_keep
    Worker.compile_or_warm_up_model = warm_and_keep


def _describe_cache(core: Any) -> dict[str, Any]:
    """The KV cache as vLLM laid it out."""
    config = core.scheduler.kv_cache_config
    return {
        "kvBlocks": config.num_blocks,
        "kvGroups": [
            {
                "kind": type(group.kv_cache_spec).__name__,
                "layers": len(group.layer_names),
                "blockSize": group.kv_cache_spec.block_size,
                "pageBytes": group.kv_cache_spec.page_size_bytes,
            }
            for group in config.kv_cache_groups
        ],
        "kvTensorBytes": sum(tensor.size for tensor in config.kv_cache_tensors),
    }
