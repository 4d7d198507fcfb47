"""What one apply of the simplest object runs through, until the operator has nothing left to do.

    python -m benchmarks.in_memory.walk

On the API in memory: the files and functions of the operator that run, the plans, and the requests
to the API server. With fewer of them, a reader follows an apply in the code more easily.
"""

import asyncio
import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import tonnage
from tests.support.in_memory.cluster import MI300X, Cluster, spec_of

_PACKAGE = str(Path(tonnage.__file__).parent)


class Walk:
    """Code of the operator that ran, with the number of calls."""

    def __init__(self) -> None:
        self.calls = Counter[CodeType]()

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """Count calls of functions of the operator; a comprehension is no function to read."""
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(_PACKAGE) and code.co_name[0] != "<":
            self.calls[code] += 1

    def count(self, function: str) -> int:
        """Calls of all functions of this name."""
        return sum(calls for code, calls in self.calls.items() if code.co_name == function)


async def walk() -> tuple[Walk, int]:
    """Apply one object, and let its replica become ready. Returns the walk and the requests."""
    cluster = Cluster(MI300X)
    cluster.apply("warm-up", spec_of())
    await cluster.settle()
    known, seen = len(cluster.api.calls), Walk()
    sys.setprofile(seen.profile)
    try:
        cluster.apply("llama", spec_of())
        await cluster.settle()
    finally:
        sys.setprofile(None)
    return seen, len(cluster.api.calls) - known


def main() -> int:
    """Print the counts."""
    seen, requests = asyncio.run(walk())
    files = {code.co_filename for code in seen.calls}
    total = sum(1 for _ in Path(_PACKAGE).rglob("*.py"))
    print(f"files that run:        {len(files)} of {total}")
    print(f"functions that run:    {len(seen.calls)}")
    print(f"calls:                 {sum(seen.calls.values())}")
    print(f"plans:                 {seen.count('make_plan')}")
    print(f"requests:              {requests}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
