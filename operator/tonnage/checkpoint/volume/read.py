"""Read the facts of a model or an adapter on a mounted volume and write them into a ConfigMap.

A pod runs this file alone, with only Python's standard library; the rest of Tonnage only reads its
text. Environment variables: MODEL_DIR, CONFIG_MAP, NAMESPACE, API_SERVER, and SERVICE_ACCOUNT_DIR
with the pod's token and the API server's CA.
"""

import json
import os
import re
import ssl
import sys
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

MAX_HEADER_BYTES = 100_000_000  # the safetensors format's own limit
MAX_CONFIG_BYTES = 900_000  # a ConfigMap holds 1 MiB
MAX_INDEX_BYTES = 32 * 1024**2
MAX_TABLE_BYTES = 100_000
ADAPTER_CONFIG = "adapter_config.json"
NUMBER = re.compile(r"(?<=\.)[0-9]{1,6}(?=\.|$)")

Tensor = dict[str, Any]
"""A header's entry for one tensor: dtype, shape, data_offsets."""


def gather_facts(folder: Path) -> dict[str, str]:
    """Return the ConfigMap's data: those of a model, of a LoRA adapter, or of both."""
    if not (folder / ADAPTER_CONFIG).exists():
        return gather_model(folder)
    adapter = read_limited(folder / ADAPTER_CONFIG, MAX_CONFIG_BYTES).decode()
    json.loads(adapter)
    if (folder / "config.json").exists():
        return {**gather_model(folder), ADAPTER_CONFIG: adapter}
    weights, facts = folder / "adapter_model.safetensors", {ADAPTER_CONFIG: adapter}
    if weights.exists():
        table = json.dumps(tabulate(read_header(weights)), separators=(",", ":"))
        facts |= {"tensors": table} if len(table) <= MAX_TABLE_BYTES else {}
    return facts


def gather_model(model: Path) -> dict[str, str]:
    """Return config.json, the bytes of all tensors, and a table of them."""
    config = read_limited(model / "config.json", MAX_CONFIG_BYTES).decode()
    json.loads(config)
    tensors: dict[str, Tensor] = {}
    for path in find_weight_files(model):
        tensors.update(read_header(path))
    if tensors:
        by_dtype: Counter[str] = Counter()
        for tensor in tensors.values():
            by_dtype[tensor["dtype"]] += count_bytes(tensor)
        facts = {
            "config.json": config,
            "weightsBytes": str(sum(by_dtype.values())),
            "bytesByDtype": json.dumps(dict(sorted(by_dtype.items()))),
        }
        table = json.dumps(tabulate(tensors), separators=(",", ":"))
        return facts if len(table) > MAX_TABLE_BYTES else {**facts, "tensors": table}
    pickles = sum(path.stat().st_size for path in model.glob("*.bin"))
    if not pickles:
        raise ValueError(f"{model} has neither *.safetensors nor *.bin files")
    return {"config.json": config, "weightsBytes": str(pickles)}


def find_weight_files(model: Path) -> list[Path]:
    """Return the files that vLLM loads: those in the index, else all safetensors files."""
    index = model / "model.safetensors.index.json"
    if not index.exists():
        return sorted(model.glob("*.safetensors"))
    names = set(json.loads(read_limited(index, MAX_INDEX_BYTES))["weight_map"].values())
    return [model / name for name in sorted(names)]


def read_header(path: Path) -> dict[str, Tensor]:
    """Return the tensors of one safetensors file by name."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= MAX_HEADER_BYTES:
            raise ValueError(f"{path} is no safetensors file: its header has {length} bytes")
        header: dict[str, Tensor] = json.loads(file.read(length))
    header.pop("__metadata__", None)
    expected = 8 + length + sum(map(count_bytes, header.values()))
    if path.stat().st_size != expected:
        raise ValueError(f"{path} has {path.stat().st_size} bytes, not {expected}: it is cut off")
    return header


def count_bytes(tensor: Tensor) -> int:
    """Return the bytes of one tensor."""
    begin, end = map(int, tensor["data_offsets"])
    return end - begin


def tabulate(tensors: dict[str, Tensor]) -> list[list[Any]]:
    """Return rows of name, dtype, shape, layers and tensors per layer.

    Tensors whose names differ only in numbers share a row: `*` replaces each number, layers are
    ranges of the first.
    """
    counts: dict[tuple[Any, ...], Counter[int]] = {}
    for name, tensor in tensors.items():
        number = NUMBER.search(name)
        layer = int(number[0]) if number else -1
        key = (NUMBER.sub("*", name), tensor["dtype"], tuple(tensor["shape"]))
        counts.setdefault(key, Counter())[layer] += 1
    rows = [
        [*key, find_ranges([layer for layer in sorted(layers) if layers[layer] == count]), count]
        for key, layers in counts.items()
        for count in sorted(set(layers.values()))
    ]
    return sorted(rows, key=lambda row: (row[0], row[1], row[3]))


def find_ranges(numbers: list[int]) -> list[list[int]]:
    """Return ascending numbers as pairs of the first and last of each run; -1 is skipped."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        elif number >= 0:
            ranges.append([number, number])
    return ranges


def read_limited(path: Path, limit: int) -> bytes:
    """Return a file's content. Raises ValueError for a file above the limit."""
    if path.stat().st_size > limit:
        raise ValueError(f"{path} has {path.stat().st_size} bytes, more than {limit}")
    return path.read_bytes()


def write_config_map(data: dict[str, str]) -> None:
    """Patch the data into the ConfigMap that the manifest created."""
    account = Path(os.environ["SERVICE_ACCOUNT_DIR"])
    resource = f"namespaces/{os.environ['NAMESPACE']}/configmaps/{os.environ['CONFIG_MAP']}"
    request = urllib.request.Request(  # noqa: S310 - the manifest sets the scheme
        f"{os.environ['API_SERVER']}/api/v1/{resource}",
        data=json.dumps({"data": data}).encode(),
        method="PATCH",
        headers={
            "Authorization": f"Bearer {(account / 'token').read_text().strip()}",
            "Content-Type": "application/merge-patch+json",
        },
    )
    tls_context = ssl.create_default_context(cafile=account / "ca.crt")
    with urllib.request.urlopen(request, timeout=30, context=tls_context):  # noqa: S310 - as above
        sys.stdout.write(f"wrote {', '.join(data)} into {resource}\n")


def main() -> None:
    """Read and write the facts; on failure, exit with one line that names the cause."""
    try:
        write_config_map(gather_facts(Path(os.environ["MODEL_DIR"])))
    except urllib.error.HTTPError as error:
        sys.exit(
            f"the API server answered {error.code}: {error.read(1000).decode(errors='replace')}"
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
