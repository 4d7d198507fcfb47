"""The project's Markdown pages: their headings, links, code blocks and words in code."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[3]

_OUTSIDE = {"dist", "build", "node_modules"}
_PARSER = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of code; `line` is that of its first line of text."""

    line: int
    language: str
    text: str


@dataclass(frozen=True, slots=True)
class Word:
    """A link's target, or a piece of code within a sentence; `line` is that of its paragraph."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Page:
    """One Markdown file, read as GitHub reads it.

    `made`: files that the reader makes, because the page shows a block with "In `FILE`:" before it.
    """

    path: Path
    anchors: frozenset[str]
    links: tuple[Word, ...]
    code: tuple[Word, ...]
    blocks: tuple[Block, ...]
    made: frozenset[str]

    @property
    def name(self) -> str:
        """The path from the repository's root."""
        return str(self.path.relative_to(ROOT))


def pages() -> list[Path]:
    """All pages of the work tree, without what was installed or built."""
    return [
        path
        for path in sorted(ROOT.rglob("*.md"))
        if not any(
            part in _OUTSIDE or part.startswith(".") for part in path.relative_to(ROOT).parts
        )
    ]


@cache
def read_page(path: Path) -> Page:
    """Parse one page."""
    return parse_page(path, path.read_text(encoding="utf-8"))


def parse_page(path: Path, text: str) -> Page:
    """The parts of a page with this text; `path` says where its links start from."""
    tokens = _PARSER.parse(text)
    inline = [token for token in tokens if token.type == "inline"]
    return Page(
        path,
        frozenset(_anchors(tokens)),
        tuple(Word(_line(token), target) for token in inline for target in _targets(token)),
        tuple(
            Word(_line(token), child.content)
            for token in inline
            for child in token.children or []
            if child.type == "code_inline"
        ),
        tuple(_blocks(tokens)),
        frozenset(_made(tokens)),
    )


def _blocks(tokens: list[Token]) -> Iterator[Block]:
    for token in tokens:
        if token.type == "fence":
            language = token.info.split()[0] if token.info.strip() else ""
            yield Block(_line(token) + 1, language, token.content)


def _made(tokens: list[Token]) -> Iterator[str]:
    for text, _, block in zip(tokens, tokens[1:], tokens[2:], strict=False):
        match = re.search(r"`([^`]+)`:$", text.content)
        if match and text.type == "inline" and block.type == "fence":
            yield match[1]


def _targets(token: Token) -> Iterator[str]:
    for child in token.children or []:
        for attribute in ("href", "src"):
            if attribute in child.attrs:
                yield str(child.attrs[attribute])
        if child.type == "html_inline":
            yield from re.findall(r"(?:href|src|srcset)=\"([^\"]+)\"", child.content)


def _anchors(tokens: list[Token]) -> Iterator[str]:
    """The names by which a link reaches a heading: GitHub's, of which a second one gets `-1`."""
    seen: dict[str, int] = {}
    for before, token in pairwise(tokens):
        if before.type == "heading_open":
            shown = "".join(child.content for child in token.children or [])
            name = re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")
            count = seen.get(name, 0)
            seen[name] = count + 1
            yield f"{name}-{count}" if count else name
    for token in tokens:
        yield from re.findall(r"<a (?:id|name)=\"([^\"]+)\"", token.content)


def _line(token: Token) -> int:
    return (token.map or [0])[0] + 1
