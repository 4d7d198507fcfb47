"""The CamelCase reasons of candidates, stable for automation."""

from enum import StrEnum
from typing import Final


class ChosenReason(StrEnum):
    """Why a pool was chosen."""

    LOWEST_COST = "LowestCost"
    FEWEST_GPUS = "FewestGPUs"
    HIGHEST_THROUGHPUT = "HighestThroughput"
    KEEPS_ITS_PLACE = "KeepsItsPlace"


class FeasibleReason(StrEnum):
    """Why a pool that could run the model now was not chosen."""

    COSTS_MORE = "CostsMore"
    NO_PRICE_KNOWN = "NoPriceKnown"
    NEEDS_MORE_GPUS = "NeedsMoreGPUs"
    SLOWER = "Slower"
    NO_ESTIMATE = "NoEstimate"
    LESS_CAPACITY = "LessRoom"
    NOT_VERIFIED = "NotVerified"
    TIGHT_FIT = "TightFit"
    RANKS_LOWER = "RanksLower"
    REPLICAS_RUN_ELSEWHERE = "ReplicasRunElsewhere"


class RejectedReason(StrEnum):
    """Why a pool cannot run the model, in the order in which they are listed: the nearest
    misses first."""

    INSUFFICIENT_GPUS = "InsufficientGPUs"
    NO_USABLE_NODES = "NoUsableNodes"
    INSUFFICIENT_RESOURCES = "InsufficientResources"
    NO_MATCHING_NODES = "NoMatchingNodes"
    QUOTA_EXCEEDED = "QuotaExceeded"
    LIMIT_RANGE_VIOLATED = "LimitRangeViolated"
    POD_SECURITY_VIOLATED = "PodSecurityViolated"
    OVER_BUDGET = "OverBudget"
    NO_PRICE_KNOWN = "NoPriceKnown"
    TOO_SLOW = "TooSlow"
    NO_ESTIMATE = "NoEstimate"
    FAILED_BEFORE = "FailedBefore"
    WORKLOAD_KIND_MISSING = "WorkloadKindMissing"
    NO_INTERCONNECT = "NoInterconnect"
    NO_NODE_DISK = "NoNodeDisk"
    KV_CACHE_DOES_NOT_FIT = "KVCacheDoesNotFit"
    OVERHEAD_DOES_NOT_FIT = "OverheadDoesNotFit"
    WEIGHTS_DO_NOT_FIT = "WeightsDoNotFit"
    ILLEGAL_PARALLELISM = "IllegalParallelism"
    INCOMPATIBLE = "Incompatible"
    UNSUPPORTED_ARCHITECTURE = "UnsupportedArchitecture"
    INVALID_POD_TEMPLATE = "InvalidPodTemplate"
    UNSUPPORTED = "Unsupported"
    UNRECOGNISED = "Unrecognised"
    NOT_SELECTED = "NotSelected"
    NOT_ALLOWED = "NotAllowed"


_NEARNESS: Final = {reason: index for index, reason in enumerate(RejectedReason)}


def nearness(reason: str) -> int:
    """Return how far a rejected pool was from being chosen, 0 for the nearest.

    Raises ValueError for a text that is not a RejectedReason.
    """
    return _NEARNESS[RejectedReason(reason)]
