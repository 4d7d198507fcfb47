"""The CamelCase reasons of candidates: stable words for automation."""

from enum import StrEnum
from typing import Final


class ChosenReason(StrEnum):
    """Why a pool was taken."""

    LOWEST_COST = "LowestCost"
    FEWEST_GPUS = "FewestGPUs"
    HIGHEST_THROUGHPUT = "HighestThroughput"
    KEEPS_ITS_PLACE = "KeepsItsPlace"


class FeasibleReason(StrEnum):
    """Why a pool that could run the model now was not taken."""

    COSTS_MORE = "CostsMore"
    NO_PRICE_KNOWN = "NoPriceKnown"
    NEEDS_MORE_GPUS = "NeedsMoreGPUs"
    SLOWER = "Slower"
    NO_ESTIMATE = "NoEstimate"
    LESS_ROOM = "LessRoom"
    TIGHT_FIT = "TightFit"
    RANKS_LOWER = "RanksLower"
    REPLICAS_RUN_ELSEWHERE = "ReplicasRunElsewhere"


class RejectedReason(StrEnum):
    """Why a pool cannot run the model, in the order in which they are listed: the nearest
    misses first."""

    INSUFFICIENT_GPUS = "InsufficientGPUs"
    NO_USABLE_NODES = "NoUsableNodes"
    OVER_BUDGET = "OverBudget"
    NO_PRICE_KNOWN = "NoPriceKnown"
    TOO_SLOW = "TooSlow"
    NO_ESTIMATE = "NoEstimate"
    FAILED_BEFORE = "FailedBefore"
    KV_CACHE_DOES_NOT_FIT = "KVCacheDoesNotFit"
    OVERHEAD_DOES_NOT_FIT = "OverheadDoesNotFit"
    WEIGHTS_DO_NOT_FIT = "WeightsDoNotFit"
    ILLEGAL_PARALLELISM = "IllegalParallelism"
    INCOMPATIBLE = "Incompatible"
    UNSUPPORTED = "Unsupported"
    UNRECOGNISED = "Unrecognised"
    NOT_SELECTED = "NotSelected"
    NOT_ALLOWED = "NotAllowed"


_NEARNESS: Final = {reason: place for place, reason in enumerate(RejectedReason)}


def nearness(reason: str) -> int:
    """How near a rejected pool came to be taken, 0 for the nearest.

    Raises ValueError for a word that is no reason to reject.
    """
    return _NEARNESS[RejectedReason(reason)]
