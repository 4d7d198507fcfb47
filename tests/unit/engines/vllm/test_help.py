"""The help of a real vLLM 0.32.0 has each flag that Tonnage renders, with its kind of value."""

import pytest

from tests.support.engines.rendered_arguments import combined_lists, flags_of, golden_lists
from tests.support.engines.vllm_help import FLAGS


def test_the_help_is_parsed_in_full():
    assert len(FLAGS) > 300
    assert FLAGS["-tp"].names == ("--tensor-parallel-size", "-tp")
    assert FLAGS["--enforce-eager"].value is None
    assert FLAGS["--kv-cache-dtype"].takes("fp8")
    assert not FLAGS["--kv-cache-dtype"].takes("int9")
    assert not FLAGS["--max-num-seqs"].takes(None)


@pytest.mark.parametrize("lists", [golden_lists, combined_lists])
def test_vllm_has_every_rendered_flag_and_takes_its_value(lists):
    for arguments in lists():
        for flag, value in flags_of(arguments):
            assert flag in FLAGS, f"{flag} of {arguments}"
            assert FLAGS[flag].takes(value), f"{flag}={value} of {arguments}"
