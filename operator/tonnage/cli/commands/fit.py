"""`tonnage fit`: checks without a cluster or GPU whether a model fits on devices."""

import argparse

from tonnage.catalog.model import Vendor
from tonnage.cli.fit.engine import AUTO, Engine
from tonnage.cli.fit.sglang.flags import add_sglang_arguments
from tonnage.cli.fit.vllm.flags import add_engine_arguments
from tonnage.cli.output import LINES, TABLE
from tonnage.cli.sources.corrections import add_corrections_argument
from tonnage.fit.flag_values import byte_size, size

_EPILOG = """\
examples:
  a model on the Hugging Face Hub, on several accelerators side by side with their cost:
    tonnage fit meta-llama/Llama-3.1-8B --accelerator mi300x,h100
  every tensor-parallel degree of a node, and the smallest that fits:
    tonnage fit --config config.json --accelerator h100-sxm-80gb --max-model-len 32k
  one layout that holds 50 requests of 2000 tokens, for a program:
    tonnage fit --config config.json --accelerator mi300x -tp 2 --max-model-len 32k \\
        --concurrency 50 --input-tokens 1500 --output-tokens 500 -o json
  an FP8 model on a card that the catalogue does not have, in another release:
    tonnage fit --config config.json --vendor nvidia --device-memory 44.4GiB --quantization fp8 \\
        --vllm-version 0.19.0 --kv-cache-dtype fp8
  the same for SGLang, by its own flags:
    tonnage fit --engine sglang --config config.json --accelerator mi300x --context-length 32k
  both engines, and which one an InferenceDeployment with spec.engine.type Auto takes:
    tonnage fit --engine auto --config config.json --accelerator mi300x,h100 --max-model-len 32k
  many cases, one JSON object a line:
    tonnage fit --batch cases.jsonl -o jsonl > predictions.jsonl

exit codes of one question: 0 it fits on an accelerator, 2 unusable input, 3 it does not fit or is
refused
exit codes of a batch: 0 every line has its answer, which is an error for an invalid line (standard
error says how many), 2 the batch cannot be read

docs/fit.md explains the answer and describes cases and predictions."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of one question, and of a file with many."""
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="its repository on the Hugging Face Hub, as meta-llama/Llama-3.1-8B (honours "
        "HF_ENDPOINT, and HF_TOKEN or what `hf auth login` saved)",
    )
    source.add_argument("--config", metavar="FILE", help="config.json of the model; - is stdin")
    source.add_argument("--batch", metavar="FILE", help="cases, one JSON object a line; - is stdin")
    source.add_argument(
        "--tp-batch", metavar="FILE", help="layouts in the same form: does vLLM accept them?"
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=(TABLE, "json", "yaml", LINES),
        help=f"form of the answer (default: {TABLE}; {LINES} for a batch)",
    )
    parser.add_argument(
        "--engine",
        choices=(*Engine, AUTO),
        default=Engine.VLLM,
        help="server whose memory is calculated; auto judges both and takes one, as "
        "spec.engine.type: Auto does (default: vllm)",
    )
    _add_model_arguments(parser)
    _add_device_arguments(parser)
    _add_workload_arguments(parser)
    add_engine_arguments(parser)
    add_sglang_arguments(parser)
    add_corrections_argument(parser)
    parser.add_argument(
        "--extra-args",
        default="",
        metavar="TEXT",
        help="other arguments and environment variables of the server, in one text, as in "
        "--extra-args 'VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0 --enable-eplb'",
    )


def run(options: argparse.Namespace) -> int:
    """Answer one question, or every line of a batch."""
    # Each answer needs much of the program, and `--help` needs none of it.
    if options.batch is not None or options.tp_batch is not None:
        from tonnage.cli.fit.batch import answer_batch  # noqa: PLC0415 - see above

        return answer_batch(options)
    from tonnage.cli.fit.answer import answer_flags  # noqa: PLC0415 - see above

    return answer_flags(options)


def _add_model_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    group.add_argument(
        "--revision", default="main", help="with MODEL: branch, tag or commit (default: main)"
    )
    weights = group.add_mutually_exclusive_group()
    weights.add_argument(
        "--weights-bytes",
        type=byte_size,
        metavar="N",
        help="size of its files: 141107412992, 132GiB, 141GB",
    )
    weights.add_argument(
        "--safetensors-index", metavar="FILE", help="its model.safetensors.index.json"
    )


def _add_device_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("device")
    group.add_argument(
        "--accelerator",
        action="append",
        metavar="NAME[,NAME...]",
        help="id (mi300x), family (h100) or vendor (amd) in any case; several are compared; "
        "`tonnage accelerators` lists them",
    )
    group.add_argument(
        "--vendor",
        type=Vendor,
        choices=tuple(Vendor),
        help="of a card that is not in the catalogue; needs --device-memory",
    )
    group.add_argument(
        "--device-memory",
        type=byte_size,
        metavar="N",
        help="memory that torch sees: 79.2GiB, 85GB (default: the catalogue's)",
    )
    group.add_argument(
        "--gpus-per-node", type=size, metavar="N", help="default: the catalogue's, else 8"
    )
    group.add_argument(
        "--nodes",
        type=size,
        default=1,
        metavar="N",
        help="of one replica: its pipeline stages are divided among them (default: 1)",
    )
    group.add_argument(
        "--vllm-version", metavar="V", help="release, image or day (default: the newest known)"
    )
    group.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="RULE",
        help="compatibility rule to override; can be given several times",
    )


def _add_workload_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "workload",
        "what the KV cache has to hold at once, in addition to one request of --max-model-len",
    )
    group.add_argument("--concurrency", type=size, metavar="N", help="requests at a time")
    group.add_argument("--input-tokens", type=size, metavar="N", help="prompt of a typical request")
    group.add_argument(
        "--output-tokens", type=size, metavar="N", help="answer to a typical request"
    )
