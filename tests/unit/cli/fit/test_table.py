"""The report on all kinds of terminals is complete, within the width, and adds up."""

import json
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO, StringIO, TextIOWrapper
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.engines.shapes import CONFIGS
from tests.support.pages.command_line import Run, runner
from tonnage.cli.fit.bars import tabulate_memory
from tonnage.cli.main import main
from tonnage.fit.model import MemoryAccount

GIB = 2**30
ACCOUNT = MemoryAccount(
    device_bytes=80 * GIB,
    budget_bytes=72 * GIB,
    weights_bytes=40 * GIB,
    activation_bytes=2 * GIB,
    non_torch_bytes=GIB // 10,
    graph_bytes=GIB,
    kv_cache_bytes=72 * GIB - 43 * GIB - GIB // 10,
    request_kv_bytes=GIB,
    kv_bytes_per_token=1,
    kv_cache_tokens=1,
)
SHORT = replace(ACCOUNT, weights_bytes=90 * GIB, kv_cache_bytes=-21 * GIB - GIB // 10)


@pytest.fixture
def fit(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys, "fit")


def draw(account: MemoryAccount, *, width: int = 100, terminal: bool = False, **how: object) -> str:
    out = StringIO()
    console = Console(file=out, width=width, force_terminal=terminal, highlight=False, **how)  # type: ignore[arg-type] # passes on what Console takes
    console.print(tabulate_memory(console, account))
    return out.getvalue()


def bars(drawn: str) -> Iterator[tuple[str, int, int]]:
    """Each line's name, and where its bar begins and ends."""
    for line in drawn.splitlines():
        name, bar, _ = [*line.split("|"), "", ""][:3]
        if bar:
            yield name.rsplit(maxsplit=1)[0].strip(), bar.find("#"), bar.rfind("#") + 1


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_each_bar_begins_where_the_one_before_it_ends(width: int) -> None:
    drawn = draw(ACCOUNT, width=width)
    assert max(len(line.rstrip()) for line in drawn.splitlines()) <= width
    spans = list(bars(drawn))
    assert [name for name, _, _ in spans] == [
        "weights", "activation", "non-torch", "graphs", "KV cache", "left alone", "device",
    ]  # fmt: skip
    whole = spans[-1][2]
    assert (spans[0][1], spans[-2][2], spans[-1][1]) == (0, whole, 0)
    for (_, _, end), (name, begin, after) in pairwise(spans[:-1]):
        assert abs(begin - end) <= 1, name
        assert after > begin, f"{name} cannot be seen"


def test_a_term_at_the_very_end_is_drawn_within_the_bar() -> None:
    full = replace(
        ACCOUNT, budget_bytes=80 * GIB - 1, weights_bytes=77 * GIB - GIB // 10, kv_cache_bytes=-1
    )
    drawn = draw(full, width=60)
    spans = {name: (begin, end) for name, begin, end in bars(drawn)}
    assert spans["left alone"] == (spans["device"][1] - 1, spans["device"][1])
    assert max(len(line.rstrip()) for line in drawn.splitlines()) <= 60


@pytest.mark.parametrize("width", [40, 60, 200])
def test_a_shortage_stays_within_the_terminal(width: int) -> None:
    assert max(len(line.rstrip()) for line in draw(SHORT, width=width).splitlines()) <= width
    assert len({line.rfind("|") for line in draw(SHORT, width=width).splitlines()[1:]}) == 1


def test_terms_beyond_the_device_are_drawn_beyond_it() -> None:
    spans = {name: (begin, end) for name, begin, end in bars(draw(SHORT))}
    assert spans["weights"][1] > spans["device"][1]
    assert spans["KV cache"] == (-1, 0)
    assert "-21.1" in draw(SHORT)


@pytest.mark.parametrize(
    ("how", "blocks"),
    [
        ({"terminal": True}, True),
        ({"terminal": True, "no_color": True}, False),
        ({"terminal": True, "_environ": {"TERM": "dumb"}}, False),
        ({"terminal": False}, False),
    ],
)
def test_blocks_are_for_terminals_that_know_them(how: dict[str, object], blocks: bool) -> None:
    for account in (ACCOUNT, SHORT):
        drawn = draw(account, **{"no_color": False, "_environ": {}, **how})  # type: ignore[arg-type] # see draw
        assert ("█" in drawn) is blocks
        assert drawn.isascii() is not blocks


def test_the_smallest_term_is_visible_as_a_block() -> None:
    tiny = replace(ACCOUNT, activation_bytes=GIB // 1000)
    drawn = draw(tiny, width=40, terminal=True, no_color=False, _environ={})
    (line,) = [line for line in drawn.splitlines() if line.startswith("activation")]
    assert any(block in line for block in "▏▕▌▐█▍▎▋▊▉")


LLAMA = ("--config", str(CONFIGS / "llama-3.3-70b.json"), "--accelerator", "h100-sxm-80gb")


def test_the_margin_shows_its_uncertainty(fit: Run) -> None:
    fits = fit(*LLAMA, "-tp", "4", "--max-model-len", "8k")[1]
    assert "GiB a GPU, +/- " in fits
    assert "beyond the 8,000 tokens asked for" in fits
    lacks = fit(*LLAMA, "-tp", "2", "--max-model-len", "64k")[1]
    assert "are lacking for the 64,000 tokens asked for" in lacks
    assert "vLLM may still start" not in lacks


def test_a_narrow_shortage_says_so(fit: Run) -> None:
    out = fit(*LLAMA, "-tp", "2", "--max-model-len", "26000")[1]
    assert "Does not fit" in out
    assert "vLLM may still start" in out


def test_if_nothing_fits_each_degree_names_the_missing_term(fit: Run) -> None:
    config = str(CONFIGS / "deepseek-v3.json")
    code, out, _ = fit("--config", config, "--accelerator", "a100-sxm-40gb")
    assert code == 3
    assert [line.split()[-1] for line in out.splitlines() if "does not fit: " in line] == [
        "weights"
    ] * 4
    assert "no setting of vLLM makes it fit on up to 8 GPUs" in out


def test_no_more_requests_are_served_than_sequences_of_a_step(fit: Run) -> None:
    small = ("--config", str(CONFIGS / "llama-3.1-8b.json"), "--accelerator", "mi300x", "-tp", "1")
    out = fit(*small, "--max-model-len", "1024", "--max-num-seqs", "8")[1]
    assert "requests at a time: 8 of 1,024 tokens (--max-num-seqs; the KV cache holds" in out
    data = json.loads(
        fit(*small, "--max-model-len", "1024", "--max-num-seqs", "8", "-o", "json")[1]
    )
    assert data["concurrentRequests"] == 8


def test_a_config_without_a_maximum_has_no_longest_context(fit: Run) -> None:
    mamba = ("--config", str(CONFIGS / "falcon-mamba-7b.json"), "--accelerator", "mi300x")
    out = fit(*mamba, "-tp", "1", "--max-model-len", "32000")[1]
    assert "longest context: 32,000 tokens or more" in out


def test_a_name_that_the_terminal_cannot_write_does_not_end_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = json.loads((CONFIGS / "llama-3.1-8b.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, "architectures": ["Ll\u00e4maForCausalLM"]}))
    stream = TextIOWrapper(BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stream)
    allowed = ("--allow", "ArchitectureUnknown", "--max-model-len", "8k")
    assert (
        main(["fit", "--config", str(path), "--accelerator", "mi300x", "-tp", "1", *allowed]) == 0
    )
    stream.seek(0)
    output = stream.read()
    assert "Ll\\xe4maForCausalLM on" in output
    assert "note: Ll\\xe4maForCausalLM is not known" in output
