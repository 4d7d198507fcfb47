"""The project uses the words of docs/glossary.md, and no private word that they replaced."""

import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
PACKAGE: Final = ROOT / "operator" / "tonnage"
REPLACED: Final = {
    "beside": "in addition to, next to, secondary placement",
    "births": "latency probe",
    "contenders": "baselines",
    "dialect": "config adapter",
    "died of memory": "ran out of memory",
    "echoes": "expectations",
    "found": "a name for what it is",
    "handover": "drain, shift replicas",
    "hindrance": "optional child error",
    "knob": "engine setting",
    "ladder": "OOM fallback plan",
    "learnt": "calibrated, measured",
    "lesson": "memory correction",
    "lifeline": "cancellable socket",
    "neighbour": "integration",
    "newborn": "new object",
    "nobody": "a noun: no replica, the operator",
    "outbox": "event queue",
    "outlook": "status input",
    "prospect": "migration candidate",
    "room": "capacity, package",
    "rung": "step of the OOM fallback plan",
    "stock": "rebuild state",
    "taught": "calibrated",
    "told": "reported, recorded",
    "toll": "resource cost",
    "tower": "encoder",
    "turmoil": "chaos",
    "unsay": "clear a status",
    "way back": "rollback",
    "weather": "fault proxy",
    "whoever": "a noun",
    "wish": "generation not yet observed",
    "witness": "watch recorder",
}
"""What replaces each word, as a person who used it has to read."""

PLAIN: Final = {"found", "stock"}
"""Words of plain English: only a name that is nothing but this word says too little."""

PUBLIC_FIELDS: Final = {
    "beside",
    "learntOf",
    "learnt_of",
    "learntOn",
    "learnt_on",
    "room",
    "roomAfterGrowth",
    "room_after_growth",
}
"""Fields of the API and of annotations that older operators wrote: they keep their names."""

_WORDS: Final = re.compile(
    r"\b(?!besides)(" + "|".join(sorted(REPLACED, key=len, reverse=True)) + r")(?:e?s)?\b",
    re.IGNORECASE,
)
_CODE: Final = re.compile(
    r"```.*?```|`[^`\n]*`|\"(?:" + "|".join(sorted(PUBLIC_FIELDS)) + r")\"", re.DOTALL
)
_TEXTS: Final = {
    tokenize.STRING,
    tokenize.COMMENT,
    getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING),  # from Python 3.12 on
}


@cache
def tokens_of(path: Path) -> list[tokenize.TokenInfo]:
    with path.open(encoding="utf-8") as file:
        return list(tokenize.generate_tokens(file.readline))


def parts_of(name: str) -> set[str]:
    """The words of an identifier, such as `free`, `gpus` of `free_gpus` and of `FreeGpus`."""
    return {part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


@cache
def replaced_parts(name: str) -> list[str]:
    parts = parts_of(name)
    words = parts | {part.removesuffix(end) for part in parts for end in ("s", "es")}
    return sorted(words & (REPLACED.keys() - PLAIN) | {name} & PLAIN)


def replaced_names(path: Path) -> Iterator[str]:
    """The name of the file, and each identifier in it, that has a replaced word."""
    names = [(0, path.stem)]
    names += [
        (each.start[0], each.string) for each in tokens_of(path) if each.type == tokenize.NAME
    ]
    for line, name in names:
        if name not in PUBLIC_FIELDS:
            for word in replaced_parts(name):
                yield f"{path.name}:{line}: {name}: use {REPLACED[word]}"


def replaced_words(text: str, where: str) -> Iterator[str]:
    for match in _WORDS.finditer(text):
        word = match[1].lower()
        if word not in PLAIN:
            line = text.count("\n", 0, match.start()) + 1
            yield f"{where}:{line}: {match[0]}: use {REPLACED[word]}"


def replaced_words_of_code(path: Path) -> Iterator[str]:
    """Replaced words in docstrings, other strings and comments."""
    for token in tokens_of(path):
        if token.type in _TEXTS:
            where = f"{path.name}:{token.start[0]}"
            yield from replaced_words(without_code(token.string), where)


def sources(folder: Path) -> list[Path]:
    files = [folder] if folder.suffix == ".py" else sorted(folder.rglob("*.py"))
    return [path for path in files if path != THIS_FILE]


def without_code(text: str) -> str:
    """The text with its code blanked out: it may have to name a public field or an old command."""
    return _CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)


THIS_FILE: Final = Path(__file__)
"""It lists the replaced words, so it is the only file that may have them."""

PARENTS: Final = [
    PACKAGE,
    *(ROOT / name for name in ("tests", "tests/unit", "e2e", "benchmarks", "accuracy")),
]
FOLDERS: Final = sorted(
    folder
    for parent in PARENTS
    for folder in parent.iterdir()
    if folder not in PARENTS and sources(folder)
)
NOT_OURS: Final = {"CHANGELOG.md", "api.md"}
"""What earlier releases said, and the fields of the API, whose descriptions are docstrings."""

PAGES: Final = sorted(
    path
    for pages in (ROOT.glob("*.md"), (ROOT / "docs").rglob("*.md"), (ROOT / "charts").rglob("*.md"))
    for path in pages
    if path.name not in NOT_OURS
)


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("folder", FOLDERS, ids=relative)
def test_no_name_is_a_replaced_word(folder: Path) -> None:
    assert [each for path in sources(folder) for each in replaced_names(path)] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=relative)
def test_no_docstring_message_or_comment_has_a_replaced_word(folder: Path) -> None:
    assert [each for path in sources(folder) for each in replaced_words_of_code(path)] == []


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_no_page_has_a_replaced_word(path: Path) -> None:
    text = without_code(path.read_text(encoding="utf-8"))
    assert list(replaced_words(text, path.name)) == []


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("Nobody is told.", ["Nobody", "told"]),
        ("It stays beside\nthe other one.", ["beside"]),
        ("the bedroom, `room`, a mushroom", []),
        ('{"beside": true, "nobody": 1}', ["nobody"]),
    ],
)
def test_a_replaced_word_is_reported_with_the_word_to_use(text: str, want: list[str]) -> None:
    complaints = list(replaced_words(without_code(text), "page.md"))
    assert [complaint.split(": ")[1] for complaint in complaints] == want
    assert all(": use " in complaint for complaint in complaints)


def test_a_name_is_judged_by_its_parts(tmp_path: Path) -> None:
    path = tmp_path / "test_weather.py"
    path.write_text(
        "free_room = MostRungs = rooms = wishes = mushroom = room = found = found_pods = 1\n"
    )
    names = [each.split(": ")[1] for each in replaced_names(path)]
    assert names == ["test_weather", "free_room", "MostRungs", "rooms", "wishes", "found"]


def test_docstrings_strings_and_comments_are_judged(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('"""Nobody."""\nreason = f"told {1}"  # wishes, found in the stock\n')
    words = [each.split(": ")[1] for each in replaced_words_of_code(path)]
    assert words == ["Nobody", "told", "wishes"]
