"""Empties a library's GPU code for other architectures, so that it compresses to a fraction.

A section `.nv_fatbin` holds fat binaries: a header and, one after the other, entries of machine
code (kind 2) or PTX (kind 1) for one architecture each. The driver loads the entry for its device,
or compiles the newest PTX that the device can run; entries that it does not choose are never read.
Sizes and offsets stay as they are. The layout is not documented; it is that of CUDA 12 and 13 as
`cuobjdump -all -lelf -lptx` shows it.
"""

import struct
from collections.abc import Iterator
from typing import Final

_MAGIC: Final = 0xBA55ED50
_PTX: Final = 1
_MACHINE_CODE: Final = 2


def keep_architecture(library: bytes, architecture: int) -> bytes:
    """The library with code for `architecture` alone (90 for Hopper), and PTX where it has none.

    Raises ValueError for a fat binary that is not laid out as described above.
    """
    section = _section(library, b".nv_fatbin")
    if section is None:
        return library
    kept, (position, size) = bytearray(library), section
    end = position + size
    while position < end:
        if struct.unpack_from("<I", library, position)[0] != _MAGIC:
            position += 8
            continue
        header, length = struct.unpack_from("<HQ", library, position + 6)
        entries = list(_entries(library, position + header, position + header + length))
        for kind, arch, start, bytes_ in entries:
            if (kind, arch) != _chosen(entries, architecture):
                kept[start : start + bytes_] = bytes(bytes_)
        position = (position + header + length + 7) // 8 * 8
    return bytes(kept)


def _entries(library: bytes, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Kind, architecture, offset and size of each entry's code."""
    while position < end:
        kind, header, size = struct.unpack_from("<H2xIQ", library, position)
        if header == 0:
            raise ValueError(f"an entry at offset {position} has no header")
        yield kind, struct.unpack_from("<I", library, position + 28)[0], position + header, size
        position += header + size


def _chosen(entries: list[tuple[int, int, int, int]], architecture: int) -> tuple[int, int]:
    if any(entry[:2] == (_MACHINE_CODE, architecture) for entry in entries):
        return _MACHINE_CODE, architecture
    compilable = [arch for kind, arch, *_ in entries if kind == _PTX and arch <= architecture]
    return _PTX, max(compilable, default=0)


def _section(library: bytes, wanted: bytes) -> tuple[int, int] | None:
    """Offset and size of a section of a 64-bit ELF file."""
    table = struct.unpack_from("<Q", library, 0x28)[0]
    entry, count, names = struct.unpack_from("<HHH", library, 0x3A)
    names_at = struct.unpack_from("<Q", library, table + names * entry + 0x18)[0]
    for number in range(count):
        header = table + number * entry
        name = names_at + struct.unpack_from("<I", library, header)[0]
        if library[name : library.index(b"\0", name)] == wanted:
            offset, size = struct.unpack_from("<QQ", library, header + 0x18)
            return offset, size
    return None
