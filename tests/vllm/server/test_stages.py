"""vLLM's own classes build the recorded pipeline stages and data-parallel ranks."""

import json
import subprocess
from pathlib import Path

import pytest

from accuracy.records import StageBuild, models, stage_builds

BUILDER = Path(__file__).parent / "build_stages.py"
MODELS = (
    "meta-llama/Llama-3.1-8B-Instruct",  # embeddings on the first stage, head on the last
    "google/gemma-3-27b-it",  # an encoder and tied embeddings on each
    "mistralai/Mixtral-8x7B-Instruct-v0.1",  # embeddings and head on each
    "Qwen/Qwen3.5-35B-A3B",  # embeddings on each, head on the last
    "deepseek-ai/DeepSeek-V3",
)


def rebuild(records: list[StageBuild], python: Path, folder: Path) -> list[list[int]]:
    """The bytes of each stage of each record, built now."""
    cases = []
    for number, record in enumerate(records):
        of_model = folder / str(number)
        of_model.mkdir()
        config = models()[record.model].config
        config = {key: value for key, value in config.items() if key != "quantization_config"}
        (of_model / "config.json").write_text(json.dumps(config), encoding="utf-8")
        sizes = {"pipeline": record.pipeline_parallel_size, "data": record.data_parallel_size}
        cases.append({"folder": str(of_model), "tensor": 1, **sizes})
    environment = {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    ran = subprocess.run(
        [python, BUILDER, json.dumps(cases)],
        check=True,
        capture_output=True,
        text=True,
        env={**environment, "HOME": str(folder), "PATH": "/usr/bin:/bin"},
    )
    built: list[list[int]] = json.loads(ran.stdout.splitlines()[-1])
    return built


@pytest.mark.parametrize("staged", [True, False], ids=["stages", "ranks"])
def test_the_records_are_what_vllm_builds(staged: bool, python: Path, tmp_path: Path) -> None:
    records = [
        record
        for record in stage_builds()
        if record.model in MODELS and (record.pipeline_parallel_size > 1) == staged
    ]
    assert len(records) >= 2
    assert rebuild(records, python, tmp_path) == [list(record.stage_bytes) for record in records]
