"""The batch that vLLM plans for, by release, device, model and options."""

from dataclasses import replace

import pytest

from tests.support.engines.shapes import load_shape
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.model import ModelShape
from tonnage.fit.batch import Batch, plan_batch
from tonnage.fit.model import EngineOptions, Parallelism

CATALOG = load_catalog()


TEXT, MULTIMODAL = load_shape("llama-3.1-8b"), load_shape("gemma-3-27b")
NOW = EngineOptions("v0.32.0", 32768)
V0 = EngineOptions("v0.7.3", 8192)


def planned(
    options: EngineOptions,
    accelerator_id: str,
    shape: ModelShape = TEXT,
    parallelism: Parallelism | None = None,
) -> Batch:
    accelerator = CATALOG.accelerator(accelerator_id)
    assert accelerator.memory_bytes is not None
    release = CATALOG.release(options.release)
    return plan_batch(
        shape, options, parallelism or Parallelism(), accelerator, accelerator.memory_bytes, release
    )


BATCHES: list[tuple[str, EngineOptions, str, Batch]] = [
    ("MI300X", NOW, "mi300x", Batch(16384, 1024, 32768)),
    ("H100", NOW, "h100-sxm-80gb", Batch(8192, 1024, 16384)),
    ("A100 has the small one", NOW, "a100-sxm-80gb", Batch(2048, 256, 4096)),
    ("the LLM class takes more at once", replace(NOW, offline=True), "a100-sxm-80gb",
     Batch(8192, 256, 16384)),
    ("before asynchronous scheduling kept tokens", replace(NOW, release="v0.25.1"),
     "h100-sxm-80gb", Batch(8192, 1024, 8192)),
    ("before large devices had a tier", replace(NOW, release="v0.22.1"), "mi300x",
     Batch(8192, 1024, 8192)),
    ("limits from the options", replace(NOW, max_num_seqs=64, max_num_batched_tokens=4096),
     "mi300x", Batch(4096, 64, 8192)),
    ("for throughput twice as much", replace(NOW, throughput_batch=True), "mi300x",
     Batch(32768, 2048, 65536)),
    ("but not limits from the options",
     replace(NOW, max_num_seqs=64, max_num_batched_tokens=4096, throughput_batch=True), "mi300x",
     Batch(4096, 64, 8192)),
    ("short requests fill less", EngineOptions("v0.32.0", 16, max_num_seqs=64), "mi300x",
     Batch(1024, 64, 2048)),
    ("no more sequences than tokens", replace(NOW, max_num_batched_tokens=512), "mi300x",
     Batch(512, 512, 1024)),
    ("0.8.0 went by the name", replace(NOW, release="v0.8.1"), "mi300x",
     Batch(2048, 1024, 2048)),
    ("0.8.5 by memory, A100 too", replace(NOW, release="v0.8.5"), "a100-sxm-80gb",
     Batch(8192, 1024, 8192)),
    ("V0 takes a whole prompt", V0, "h100-sxm-80gb", Batch(8192, 256, 8192)),
    ("V0 takes some tokens at least", replace(V0, max_model_len=1024), "l4",
     Batch(2048, 256, 2048)),
    ("V0 cuts a prompt beyond 32K", replace(V0, max_model_len=131_072), "h100-sxm-80gb",
     Batch(2048, 256, 2048)),
    ("V0 does not on ROCm", replace(V0, max_model_len=131_072), "mi300x",
     Batch(131_072, 256, 131_072)),
    ("unless the option is on",
     replace(V0, max_model_len=131_072, enable_chunked_prefill=True), "mi300x",
     Batch(2048, 256, 2048)),
    ("the first V0 chunks were small", replace(V0, release="v0.6.3", max_model_len=131_072),
     "h100-sxm-80gb", Batch(512, 256, 512)),
    ("a chunking engine without chunking",
     replace(NOW, enable_chunked_prefill=False), "h100-sxm-80gb",
     Batch(32768, 1024, 65536)),
]  # fmt: skip


@pytest.mark.parametrize(("what", "options", "accelerator", "want"), BATCHES)
def test_batches(what: str, options: EngineOptions, accelerator: str, want: Batch) -> None:
    assert planned(options, accelerator) == want, what


def test_v0_sizes_a_batch_for_an_image() -> None:
    assert planned(replace(V0, max_model_len=2048), "l4", MULTIMODAL).max_num_batched_tokens == 5120


def test_v0_does_not_cut_prompts_with_images() -> None:
    long = replace(V0, max_model_len=65_536)
    assert planned(long, "h100-sxm-80gb", MULTIMODAL).max_num_batched_tokens == 65_536


def test_a_pipeline_has_more_tokens_in_flight() -> None:
    batch = planned(NOW, "h100-sxm-80gb", parallelism=Parallelism(1, 2))
    assert batch == Batch(8192, 1024, 24576)
