# ruff: noqa: A005 - the module has its subcommand's name; nothing imports `inspect` from here
"""`tonnage inspect`: shows the facts of a model, from the Hub, from files, or by a Job."""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any, Final

import yaml
from pydantic import ValidationError
from rich.markup import escape
from rich.table import Table

from tonnage.api.model import ConfigMapSource, ModelFacts, PersistentVolumeClaimSource
from tonnage.api.parse import describe_refused
from tonnage.checkpoint.model import Checkpoint
from tonnage.checkpoint.safetensors.formats import make_checkpoint
from tonnage.checkpoint.safetensors.headers import MAX_INDEX_BYTES, parse_index
from tonnage.checkpoint.shape import MAX_CONFIG_BYTES, parse_config_text
from tonnage.checkpoint.volume.job import DEFAULT_IMAGE, render_inspection
from tonnage.cli.errors import ExitCode, InputError
from tonnage.cli.output import make_console, make_table
from tonnage.cli.sources.model_files import parse_model_file
from tonnage.cli.sources.namespaces import add_namespace_argument

_GIB: Final = 1024**3
_FLAG_OF_FIELD: Final = {
    "claim_name": "--pvc",
    "path": "--path",
    "name": "--config-map",
}
_FLAGS_OF_SOURCE: Final[Mapping[str, Mapping[str, str | None]]] = {
    "--repo": {"--revision": "main", "--output": "table"},
    "--adapter": {"--revision": "main", "--output": "table"},
    "--config": {"--index": None, "--output": "table"},
    "--pvc": {
        "--path": "",
        "--namespace": "default",
        "--config-map": None,
        "--image": DEFAULT_IMAGE,
    },
}
"""The flags of each source, with their defaults."""

_IMAGE: Final = re.compile(r"[\w./:@+-]{1,512}", re.ASCII)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sources of a model or an adapter and the options of each."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--repo", help="repository on the Hugging Face Hub (honours HF_ENDPOINT)")
    source.add_argument("--adapter", metavar="REPO", help="LoRA adapter on the Hugging Face Hub")
    source.add_argument("--config", metavar="FILE", help="config.json of a model; - is stdin")
    source.add_argument("--pvc", metavar="CLAIM", help="volume; prints a Job that reads it")
    parser.add_argument(
        "--revision",
        help="with --repo and --adapter: branch, tag or commit (default: main)",
    )
    parser.add_argument(
        "--index", metavar="FILE", help="with --config: model.safetensors.index.json"
    )
    parser.add_argument(
        "--path",
        help="with --pvc: folder of the model or adapter (default: the volume's root)",
    )
    add_namespace_argument(parser, "with --pvc: namespace of the claim (default: default)")
    parser.add_argument(
        "--config-map", metavar="NAME", help="with --pvc: where to write (default: from the names)"
    )
    parser.add_argument(
        "--image",
        help=f"with --pvc: image with python3 (default: {DEFAULT_IMAGE})",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=["table", "json"],
        help="with --repo, --adapter and --config: form of the answer (default: table)",
    )
    parser.epilog = (
        "The token for private and gated repositories is HF_TOKEN, or what `hf auth login` saved."
    )


def run(options: argparse.Namespace) -> int:
    """Print the facts, or the manifests of the Job that gathers them."""
    _complete(options)
    if options.pvc is not None:
        sys.stdout.write(_render_job(options))
        return ExitCode.DONE
    if options.adapter is not None:
        _show_adapter(options)
        return ExitCode.DONE
    checkpoint = _read_checkpoint(options)
    if options.output == "json":
        tensors = checkpoint.tensors
        facts = {
            **asdict(replace(checkpoint, tensors=None)),
            "bytes_by_dtype": dict(checkpoint.bytes_by_dtype),
            "tensors": [asdict(row) for row in tensors.rows] if tensors else [],
        }
        sys.stdout.write(json.dumps(facts, indent=2) + "\n")
    else:
        make_console().print(_tabulate(checkpoint))
    return ExitCode.DONE


def _complete(options: argparse.Namespace) -> None:
    """Set the defaults. Raises InputError for a flag of another source."""
    (source,) = (flag for flag in _FLAGS_OF_SOURCE if getattr(options, flag[2:]) is not None)
    for sources in _FLAGS_OF_SOURCE.values():
        for flag in sources:
            name = flag[2:].replace("-", "_")
            if getattr(options, name) is None:
                setattr(options, name, _FLAGS_OF_SOURCE[source].get(flag))
            elif flag not in _FLAGS_OF_SOURCE[source]:
                owners = [one for one, flags in _FLAGS_OF_SOURCE.items() if flag in flags]
                raise InputError(f"{flag} is not for {source}, but for {', '.join(owners)}")


def _show_adapter(options: argparse.Namespace) -> None:
    # The client of the Hub takes longer to import than a file takes to read.
    from tonnage.cli.sources.repository import read_adapter  # noqa: PLC0415 - see above

    facts = asdict(read_adapter(options.adapter, options.revision, "--adapter"))
    del facts["config"]  # the file itself, of which the others are read
    if options.output == "json":
        sys.stdout.write(json.dumps(facts, indent=2) + "\n")
        return
    table = make_table("FACT", "VALUE")
    for name, value in facts.items():
        text = ", ".join(value) if isinstance(value, tuple) else str(value)
        table.add_row(name, escape(text))
    make_console().print(table)


def _read_checkpoint(options: argparse.Namespace) -> Checkpoint:
    if options.repo is not None:
        # The client of the Hub takes longer to import than a file takes to read.
        from tonnage.cli.sources.repository import read_repository  # noqa: PLC0415 - see above

        return read_repository(options.repo, options.revision, "--repo")
    shape = parse_model_file(parse_config_text, options.config, MAX_CONFIG_BYTES)
    if options.index is None:
        return Checkpoint(shape=shape)
    return make_checkpoint(
        shape, index=parse_model_file(parse_index, options.index, MAX_INDEX_BYTES)
    )


def _tabulate(checkpoint: Checkpoint) -> Table:
    table = make_table("FACT", "VALUE")
    facts = {**asdict(checkpoint.shape), "revision": checkpoint.revision}
    for name, value in _flatten(facts):
        table.add_row(name, escape(str(value)))
    for dtype, size in checkpoint.bytes_by_dtype:
        table.add_row(f"tensors in {dtype}", _format_size(size))
    weights = checkpoint.weights_bytes
    table.add_row("weights", "unknown" if weights is None else _format_size(weights))
    return table


def _flatten(facts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the facts that are set; nested ones as part.name."""
    for name, value in facts.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", value


def _format_size(size_bytes: int) -> str:
    return f"{size_bytes / _GIB:.2f} GiB ({size_bytes} bytes)"


def _render_job(options: argparse.Namespace) -> str:
    """The manifests as YAML, with instructions as comments above."""
    config_map = options.config_map or _default_config_map(options.pvc, options.path)
    claim = _parse_claim(options, config_map)
    if not _IMAGE.fullmatch(options.image):
        raise InputError(f"--image {options.image[:80]!r} does not match {_IMAGE.pattern}")
    manifests = render_inspection(claim, options.namespace, config_map, options.image)
    return _usage(claim) + yaml.dump_all(manifests, Dumper=_Dumper, sort_keys=False, width=100)


def _parse_claim(options: argparse.Namespace, config_map: str) -> PersistentVolumeClaimSource:
    """The source as an InferenceDeployment will name it, so that the API model checks the names."""
    try:
        return PersistentVolumeClaimSource(
            claim_name=options.pvc,
            path=options.path,
            facts=ModelFacts(config_map=ConfigMapSource(name=config_map)),
        )
    except ValidationError as error:
        raise InputError(_first_error(error)) from None


def _default_config_map(claim: str, path: str) -> str:
    """`models` and `llama/70B` make `models-llama-70b`."""
    return re.sub(r"[^a-z0-9]+", "-", f"{claim}-{path}".lower()).strip("-")


def _usage(claim: PersistentVolumeClaimSource) -> str:
    model = {"model": {"source": {"persistentVolumeClaim": claim.to_dict()}}}
    spec = yaml.safe_dump({"spec": model}, sort_keys=False)
    lines = [
        "Apply this with kubectl; then an InferenceDeployment can say:",
        *spec.splitlines(),
        "# An adapter of spec.lora has the same source.",
    ]
    return "".join(f"# {line}\n" for line in lines)


def _first_error(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    return f"{_FLAG_OF_FIELD[str(first['loc'][-1])]} {describe_refused(first)}"


class _Dumper(yaml.SafeDumper):
    """Writes multi-line texts as blocks and no anchors, because users review the manifests."""

    def ignore_aliases(self, _: object) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    )


_Dumper.add_representer(str, _represent_text)
