"""How large a share may be in truth, after so many cases: Clopper and Pearson's bound."""

import math


def pairs_needed(target: float, confidence: float = 0.95) -> int:
    """Return how many served pairs, none of them wrong, show that a wrong share is kept."""
    return math.ceil(math.log(1 - confidence) / math.log1p(-target))


def upper_bound(wrong: int, served: int, confidence: float = 0.95) -> float:
    """Return Clopper and Pearson's one-sided upper bound of a share.

    It is the share at which so few wrong ones, or fewer, would be seen with a probability of 1 - `confidence`.

    Args:
        wrong: How many were wrong.
        served: Of how many.
        confidence: Over 0 and below 1.
    """
    if wrong >= served:
        return 1.0
    low, high = wrong / served, 1.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        if _at_most(wrong, served, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _at_most(wrong: int, served: int, share: float) -> float:
    """Return the binomial probability of at most so many wrong ones, for a share of at least `wrong / served`."""
    if share >= 1:
        return 0.0
    choices = math.lgamma(served + 1) - math.lgamma(wrong + 1) - math.lgamma(served - wrong + 1)
    term = math.exp(choices + wrong * math.log(share) + (served - wrong) * math.log1p(-share))
    total = term
    for count in range(wrong, 0, -1):  # from the largest term down
        term *= count * (1 - share) / ((served - count + 1) * share)
        total += term
        if term < 1e-18 * total:
            break
    return total
