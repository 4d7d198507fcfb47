"""Writes what SGLang shows on /metrics, by its own collectors: tests/data/sglang-metrics.txt.

It runs like configure.py. The values are made up: a pool of 411,000 tokens, two requests that run
and one that waits, and one that has ended.

    PYTHONPATH=SGLANG python write_metrics.py > tests/data/sglang-metrics.txt
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp()  # before prometheus_client is imported

from configure import pretend

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "vocab_size": 128256,
}


def publish_settings() -> Any:
    """Let SGLang know its arguments, as a server does before its metrics are made."""
    from sglang.srt.arg_groups.overrides import model_config_of
    from sglang.srt.runtime_context import SpawnRanks, publish
    from sglang.srt.server_args import ServerArgs

    folder = Path(tempfile.mkdtemp())
    (folder / "config.json").write_text(json.dumps(LLAMA))
    arguments = ServerArgs(model_path=str(folder), load_format="dummy", enable_metrics=True)
    arguments.resolve_once()
    hf_config = model_config_of(arguments).hf_config
    ranks = SpawnRanks(world_rank=0, gpu_id=0)
    publish(arguments, role="scheduler", hf_config=hf_config, ranks=ranks)
    return arguments


def main() -> None:
    """Write the page."""
    pretend("sm_90", 81559)
    settings = publish_settings()
    from sglang.srt.observability.metrics_collector import (
        QueueCount,
        SchedulerMetricsCollector,
        SchedulerStats,
        TokenizerMetricsCollector,
    )

    base = {"model_name": "llama", "engine_type": "unified"}
    ranks = {"tp_rank": 0, "pp_rank": 0, "moe_ep_rank": 0}
    scheduler = SchedulerMetricsCollector(labels={**base, **ranks}, server_args=settings)
    scheduler.emit_constants(
        411_000, None, 15.0, 50.2, {"decode": 1.5}, None, 1, 411_000, 8192, 10.0
    )
    scheduler.log_stats(
        SchedulerStats(
            num_running_reqs=QueueCount(total=2),
            num_queue_reqs=QueueCount(total=1),
            token_usage=0.25,
        )
    )
    scheduler.observe_queue_time(0.25)
    scheduler.increment_retracted_reqs(1, 100, 20)
    tokenizer = TokenizerMetricsCollector(server_args=settings, labels=base)
    tokenizer.observe_one_finished_request(base, 1000, 200, 400, 6.0, has_grammar=False)
    tokenizer.observe_time_to_first_token(base, 0.5, stream=False)
    tokenizer.observe_inter_token_latency(base, 0.02, 1)
    tokenizer.observe_one_aborted_request(base)
    _write_page()


def _write_page() -> None:
    """As SGLang's route /metrics does (srt/utils/common.py add_prometheus_middleware)."""
    from prometheus_client import CollectorRegistry, generate_latest, multiprocess

    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)
    sys.stdout.write(generate_latest(registry).decode())


if __name__ == "__main__":
    main()
