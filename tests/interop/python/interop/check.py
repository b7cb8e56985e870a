"""Assertions that say what was expected and what came instead."""

import time
from collections import Counter

PATIENCE_SECONDS = 60


def equal(expected, actual, what):
    if expected != actual:
        raise AssertionError(f"{what}: expected {expected!r}, got {actual!r}")


def same_elements(expected, actual, what):
    """Each as often as the other has it, in any order."""
    missing = Counter(expected) - Counter(actual)
    extra = Counter(actual) - Counter(expected)
    if missing or extra:
        raise AssertionError(
            f"{what}: expected {len(expected)} messages, got {len(actual)}, "
            f"missing {sorted(missing.elements())}, unexpected {sorted(extra.elements())}")


def eventually(expectation, holds):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {PATIENCE_SECONDS} s: {expectation}")
        time.sleep(0.05)
