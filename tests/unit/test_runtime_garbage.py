"""What the process tells the garbage collector, of which there is one in each process."""

import subprocess
import sys

_TELL_AND_SHOW = """
import gc
from tonnage.runtime.garbage import never_search_what_is_there, search_seldom
class Found: pass
def knot():
    one = Found(); one.itself = one
    return one
staying = knot()
search_seldom(); never_search_what_is_there()
assert not any(each is staying for each in gc.get_objects()), "it is still searched"
before = sum(each["collections"] for each in gc.get_stats())
for _ in range(2_000):
    knot()
searches = sum(each["collections"] for each in gc.get_stats()) - before
left = sum(isinstance(each, Found) for each in gc.get_objects())
for _ in range(50_000):
    knot()
later = sum(isinstance(each, Found) for each in gc.get_objects())
print(searches, left == 2_000, later < 50_000)
"""


def test_what_is_there_is_not_searched_what_is_new_seldom_and_garbage_goes_all_the_same() -> None:
    told = subprocess.run(
        [sys.executable, "-c", _TELL_AND_SHOW], capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == ["0", "True", "True"]
