"""Advice on LoRA adapters: fewer layers with buffers, or buffers that GPUs share."""

from dataclasses import replace
from typing import Any

from tests.unit.fit.lora.test_buffers import CATALOG, GIB, H100, QWEN3_30B, with_lora
from tonnage.checkpoint.model import Checkpoint
from tonnage.checkpoint.shape import parse_config
from tonnage.fit.engines.vllm import VLLM_MEMORY
from tonnage.fit.model import Parallelism
from tonnage.fit.questions.adapters import smaller_with_targets
from tonnage.fit.questions.advice import Setting, advise
from tonnage.fit.questions.limits import judge_degrees
from tonnage.fit.questions.question import FitQuestion


def question(tensor: int = 1, **options: Any) -> FitQuestion:
    return FitQuestion(
        Checkpoint(parse_config(QWEN3_30B)),
        H100,
        79 * GIB,
        Parallelism(tensor),
        with_lora(4, 64, **options),
        8192,
        memory=VLLM_MEMORY,
    )


def test_fewer_layers_with_buffers_fit_on_fewer_gpus() -> None:
    asked = question()
    note = smaller_with_targets(asked, judge_degrees(asked, 8, CATALOG), CATALOG)
    assert note == "with --lora-target-modules o_proj,qkv_proj it fits with TP 1"


def test_there_is_nothing_to_say_where_all_layers_fit_on_one_gpu() -> None:
    asked = replace(question(), options=with_lora(1, 8))
    assert smaller_with_targets(asked, judge_degrees(asked, 8, CATALOG), CATALOG) is None


def test_target_modules_are_the_smallest_change_on_one_gpu() -> None:
    chosen = {Setting.SPLIT, Setting.CONTEXT, Setting.QUANTIZATION}
    first, *_ = advise(question(), chosen, (), 8, CATALOG)
    assert [step.argument for step in first.steps] == ["--lora-target-modules o_proj qkv_proj"]


def test_full_sharding_comes_before_fewer_layers() -> None:
    chosen = {Setting.SPLIT, Setting.CONTEXT, Setting.QUANTIZATION, Setting.EXPERTS}
    asked = replace(question(2), options=with_lora(8, 64))
    first, *_ = advise(asked, chosen, (), 8, CATALOG)
    assert [step.argument for step in first.steps] == ["--fully-sharded-loras"]
