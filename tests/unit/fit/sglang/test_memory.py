"""The verdict on SGLang's pool: exactly the tokens of the pool fit, in whole pages."""

from dataclasses import replace

import pytest

from tests.support.engines.shapes import CONFIGS
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.safetensors.formats import make_checkpoint
from tonnage.checkpoint.shape import parse_config_text
from tonnage.fit.calibration.corrections import (
    CorrectionKey,
    MemoryCorrection,
    Origin,
    ServedModel,
)
from tonnage.fit.model import (
    DoesNotFit,
    EngineOptions,
    FitVerdict,
    MemoryFit,
    MemoryTerm,
    Parallelism,
)
from tonnage.fit.sglang.memory import judge_sglang_fit, replica_of

CATALOG = load_catalog()
H100 = CATALOG.accelerator("h100-sxm-80gb")
GIB = 2**30
MEMORY_BYTES = H100.memory_bytes or 0
OPTIONS = EngineOptions(CATALOG.default_release, 8192)


def judge(
    config: str, tokens: int, accelerator: str = "h100-sxm-80gb", tensor: int = 1
) -> FitVerdict:
    device = CATALOG.accelerator(accelerator)
    checkpoint = make_checkpoint(parse_config_text((CONFIGS / config).read_text()))
    assert device.memory_bytes is not None
    layout = Parallelism(tensor)
    return judge_sglang_fit(
        checkpoint, device, device.memory_bytes, layout, OPTIONS, tokens, CATALOG
    )


@pytest.mark.parametrize(
    ("config", "accelerator", "tensor"),
    [
        ("llama-3.1-8b.json", "h100-sxm-80gb", 1),  # pages of a token
        ("llama-3.1-8b.json", "b200", 1),  # pages of 64 tokens
        ("gpt-oss-120b.json", "mi300x", 1),  # a pool for windows
        ("deepseek-v3.json", "mi300x", 8),  # latents
    ],
)
def test_the_pool_holds_its_tokens_and_no_more(config: str, accelerator: str, tensor: int) -> None:
    verdict = judge(config, 8192, accelerator, tensor)
    assert isinstance(verdict, MemoryFit)
    tokens = verdict.account.kv_cache_tokens
    assert isinstance(judge(config, tokens, accelerator, tensor), MemoryFit)
    lacking = judge(config, tokens + 1, accelerator, tensor)
    assert isinstance(lacking, DoesNotFit)
    assert lacking.needed_bytes > lacking.available_bytes


def test_a_correction_takes_its_part_of_the_pool() -> None:
    served = ServedModel("x", "bfloat16", "auto", "0.5.23", "sglang")
    checkpoint = make_checkpoint(parse_config_text((CONFIGS / "llama-3.1-8b.json").read_text()))

    def pool(extra_bytes: int, origin: Origin = Origin.MEASUREMENT) -> FitVerdict:
        correction = MemoryCorrection(CorrectionKey(served, H100.id), extra_bytes, origin)
        layout = Parallelism()
        return judge_sglang_fit(
            checkpoint, H100, MEMORY_BYTES, layout, OPTIONS, 8192, CATALOG, correction
        )

    plain, less, failed = judge("llama-3.1-8b.json", 8192), pool(GIB), pool(GIB, Origin.FAILURE)
    assert isinstance(plain, MemoryFit)
    assert isinstance(less, MemoryFit)
    assert isinstance(failed, MemoryFit)
    assert plain.account.kv_cache_bytes - less.account.kv_cache_bytes == GIB
    assert less.account.correction_bytes == GIB
    assert less.account.kv_cache_tokens < plain.account.kv_cache_tokens
    # A measured start had these weights; a failed one says nothing of them.
    assert 0 < less.account.band_bytes < plain.account.band_bytes == failed.account.band_bytes
    none = pool(80 * GIB)
    assert isinstance(none, DoesNotFit)
    assert none.term is MemoryTerm.CORRECTION


@pytest.mark.parametrize(
    ("driver_mib", "usual_bytes", "device_bytes", "want_mib"),
    [
        (H100.driver_mib, MEMORY_BYTES, MEMORY_BYTES, 81559),
        (H100.driver_mib, MEMORY_BYTES, MEMORY_BYTES // 2, 40779),  # a part of the card
        (None, MEMORY_BYTES, 64 * 2**30, 64 * 1024),
        (None, None, 64 * 2**30, 64 * 1024),
    ],
)
def test_the_driver_reports_in_proportion_to_torch(
    driver_mib: int | None, usual_bytes: int | None, device_bytes: int, want_mib: int
) -> None:
    shape = parse_config_text((CONFIGS / "llama-3.1-8b.json").read_text())
    device = replace(H100, driver_mib=driver_mib, memory_bytes=usual_bytes)
    replica = replica_of(shape, device, device_bytes, Parallelism(), OPTIONS)
    assert replica.device.memory_mib == want_mib
