"""The settings of the garbage collector, in a process of their own."""

import subprocess
import sys

_PROGRAM = """
import gc
from tonnage.controller.garbage_collection import freeze_live_objects, set_gc_thresholds
class Cycle: pass
def make_cycle():
    one = Cycle(); one.itself = one
    return one
staying = make_cycle()
set_gc_thresholds(); freeze_live_objects()
assert not any(obj is staying for obj in gc.get_objects()), "it is still collected"
before = sum(stats["collections"] for stats in gc.get_stats())
for _ in range(2_000):
    make_cycle()
collections = sum(stats["collections"] for stats in gc.get_stats()) - before
left = sum(isinstance(obj, Cycle) for obj in gc.get_objects())
for _ in range(50_000):
    make_cycle()
later = sum(isinstance(obj, Cycle) for obj in gc.get_objects())
print(collections, left == 2_000, later < 50_000)
"""


def test_live_objects_are_frozen_and_new_ones_collected_seldom() -> None:
    completed = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True
    )
    assert completed.stdout.split() == ["0", "True", "True"]
