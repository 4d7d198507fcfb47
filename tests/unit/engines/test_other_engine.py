"""Arguments of another engine than the one of the spec are refused, and what to do is named."""

import pytest

from tests.golden.render.inputs import make_spec
from tests.support.engines.vllm_help import FLAGS
from tonnage.catalog.sglang_arguments import load_sglang_arguments
from tonnage.catalog.sglang_server import load_sglang_server
from tonnage.catalog.vllm.flags import engine_flags
from tonnage.engines.errors import ReservedArgumentError
from tonnage.workloads.pod.template import check_template

OF_SGLANG = engine_flags().of_sglang
OF_VLLM = load_sglang_server().of_vllm
EARLIER = {"cuda-graph-max-bs"}
"""An argument that releases of SGLang before 0.5.23 had."""


def test_the_listed_arguments_are_those_of_one_engine_only() -> None:
    of_sglang = {flag.removeprefix("--") for flag in OF_SGLANG} - EARLIER
    assert of_sglang <= load_sglang_arguments().first_names.keys()
    assert not OF_SGLANG.keys() & (FLAGS.keys() | engine_flags().flags.keys())
    of_vllm = {f"--{name}" for name in OF_VLLM}
    assert of_vllm <= FLAGS.keys()


@pytest.mark.parametrize(
    ("engine", "argument", "want"),
    [
        *(("vllm", flag, instead) for flag, instead in OF_SGLANG.items()),
        *(("sglang", f"--{name}", instead) for name, instead in OF_VLLM.items()),
    ],
)
@pytest.mark.parametrize("form", ["{}=1", "{}"])
def test_they_are_refused_at_their_item(engine: str, argument: str, want: str, form: str) -> None:
    extra = ["--trust-remote-code", form.format(argument), "1"]
    with pytest.raises(ReservedArgumentError) as refused:
        check_template(make_spec(engine={engine: {"extraArgs": extra}}))
    assert str(refused.value).startswith(f"spec.engine.{engine}.extraArgs[1]: argument '{argument}")
    assert str(refused.value).endswith(want)


def test_underscores_make_no_difference() -> None:
    extra = {"extraArgs": ["--mem_fraction_static=0.8"]}
    with pytest.raises(ReservedArgumentError, match="gpuMemoryUtilization"):
        check_template(make_spec(engine={"vllm": extra}))
