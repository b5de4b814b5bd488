"""The verdict of a claim: from its measurements at all budgets and with other seeds, and from the
p-values of all claims.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from experiments.claims.entries import Entry
from experiments.claims.ledger import Claim, Measured, Number, Verdict
from experiments.claims.register import LEDGER

BUDGETS = (1, 2, 4)
RATE = 0.05  # of false discoveries
SMALLEST = 1e-9  # of p-values
NONE = "not decided", "not measured"  # words that decide nothing
AGAIN = "with other seeds"


CONTROL = "(control)"  # in the name of a number


class Finding(NamedTuple):
    """A claim with all its measurements, in the order of their budgets, and its verdict.

    again: measurements with other seeds, which begin higher.
    p: the p-value of the verdict; None if nothing in it is random.
    q: p after the correction for all claims (Benjamini and Hochberg 1995): the least rate of false
      discoveries at which the verdict is one.
    """

    claim: Claim
    entries: Sequence[Entry]
    again: Sequence[Entry]
    verdict: Verdict
    p: float | None
    q: float | None

    @property
    def last(self) -> Entry:
        """The measurement at the largest budget."""
        return self.entries[-1]

    @property
    def changed(self) -> bool:
        """Whether the claim or its rule changed after a measurement."""
        return any(entry.changed for entry in (*self.entries, *self.again))

    @property
    def moving(self) -> dict[str, tuple[Number, Number]]:
        """Name -> the numbers at the last two budgets that differ by more than half of an interval
        of theirs, of those that the rule reads, but for controls.

        An equal verdict at all budgets says that the sign of an effect is stable, not its size.
        """
        if len(self.entries) < 2 or not all(entry.measured.numbers for entry in self.entries):
            return {}
        before, last = (entry.measured.intervals for entry in self.entries[-2:])
        read = _Read(last)
        self.claim.rule(read)
        both = {name: (before[name], last[name]) for name in read.names if name in before}
        return {
            name: pair
            for name, pair in both.items()
            if CONTROL not in name and _apart(*pair) > max(number.half or 0.0 for number in pair)
        }


def _apart(before: Number, last: Number) -> float:
    """The distance of the means; 0 if nothing in the numbers is random."""
    return 0.0 if last.half is None else abs(last.mean - before.mean)


class _Read(Mapping[str, Number]):
    """Numbers that remember which of them were read, in the order of the first time."""

    def __init__(self, numbers: Mapping[str, Number]):
        self._numbers, self.names = numbers, list[str]()

    def __getitem__(self, name: str) -> Number:
        number = self._numbers[name]
        if name not in self.names:
            self.names.append(name)
        return number

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


def findings(entries: Sequence[Entry]) -> list[Finding]:
    """The findings on the claims measured, in the ledger's order.

    A claim on trained models gets the verdict of all of BUDGETS, if they agree with each other and
    with measurements with other seeds, and if it is one at a false discovery rate of 5% over all
    claims given. Otherwise it is "not decided".
    """
    measured, again = {}, {}
    for id in LEDGER:
        if entries_of := [e for e in entries if e.claim.id == id]:
            entries_of.sort(key=lambda e: (e.run["first_seed"], e.budget))
            first = entries_of[0].run["first_seed"]
            first_seeds = [e for e in entries_of if e.run["first_seed"] == first]
            measured[id] = first_seeds if first_seeds[0].trains else first_seeds[-1:]
            again[id] = entries_of[len(first_seeds) :]
    verdicts = {
        id: repeated(agreed(first_seeds), again[id]) for id, first_seeds in measured.items()
    }
    p = {id: _largest_p(first_seeds, verdicts[id]) for id, first_seeds in measured.items()}
    q = corrected({id: value for id, value in p.items() if value is not None})
    return [
        Finding(
            LEDGER[id],
            first_seeds,
            again[id],
            _significant(verdicts[id], q.get(id)),
            p[id],
            q.get(id),
        )
        for id, first_seeds in measured.items()
    ]


def repeated(verdict: Verdict, again: Sequence[Entry]) -> Verdict:
    """The verdict, or "not decided" if one with other seeds is another one."""
    others = [
        f"{e.verdict} with the seeds from {e.run['first_seed']} on"
        for e in again
        if str(e.verdict) != str(verdict)
    ]
    if verdict.word in NONE or not others:
        return verdict
    reason = f"{verdict} with the first seeds, {', '.join(others)}; {verdict.reason}"
    return Verdict("not decided", reason, AGAIN)


def agreed(entries: Sequence[Entry]) -> Verdict:
    """The verdict of a claim at all budgets, word and condition; otherwise "not decided"."""
    last, first = entries[-1], entries[0]
    if not all(e.verdict.word != "not measured" for e in entries):
        return next(e.verdict for e in entries if e.verdict.word == "not measured")
    if not first.trains:
        return last.verdict
    by_budget = "; ".join(f"{e.budget}x: {e.verdict}" for e in entries)
    reason = f"{by_budget}; at {last.budget}x {last.verdict.reason}"
    undecided = Verdict("not decided", reason, "at this budget")
    if first.run["scale"] != "full":
        return undecided._replace(reason=f"quick models lean to: {last.verdict}")
    whole = {e.budget for e in entries} >= set(BUDGETS)
    return last.verdict if whole and len({str(e.verdict) for e in entries}) == 1 else undecided


def p_value(claim: Claim, measured: Measured) -> float | None:
    """The p-value of the rule's verdict on one measurement; None if nothing in it is random.

    It is the smallest alpha at which intervals of level 1 - alpha still give the verdict's word. If
    that word is "does not hold", each interval is read in the claim's favour: a bound is missed
    only if the whole interval misses it. For one bound this is the p-value of the two-sided t test
    of the mean against the bound; for several that must all be met, the largest (an
    intersection-union test, Berger 1982).
    """
    numbers = measured.intervals
    if all(number.half is None for number in numbers.values()):
        return None
    word = claim.rule(numbers).word
    lenient = word == "does not hold"

    def same(alpha: float) -> bool:
        return claim.rule({k: n.at(alpha, lenient) for k, n in numbers.items()}).word == word

    low, high = math.log(SMALLEST), 0.0 if lenient else math.log(0.05)
    if same(SMALLEST):
        return SMALLEST
    if not same(math.exp(high)):
        return 1.0
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (low, middle) if same(math.exp(middle)) else (middle, high)
    return math.exp(high)


def corrected(p: Mapping[str, float]) -> dict[str, float]:
    """The p-values after the correction of Benjamini and Hochberg (1995)."""
    q, least = {}, 1.0
    for rank, id in reversed([*enumerate(sorted(p, key=lambda id: p[id]), 1)]):
        q[id] = least = min(least, p[id] * len(p) / rank)
    return q


def _largest_p(entries: Sequence[Entry], verdict: Verdict) -> float | None:
    """The p-value of a verdict that all budgets must give; 1 if it is none."""
    p = [p_value(e.claim, e.measured) for e in entries if e.measured.numbers]
    p_random = [value for value in p if value is not None]
    if p_random and verdict.word in NONE:
        return 1.0
    return max(p_random, default=None)


def _significant(verdict: Verdict, q: float | None) -> Verdict:
    """The verdict, or "not decided" if it is none at a false discovery rate of 5%."""
    if q is None or q <= RATE or verdict.word in NONE:
        return verdict
    reason = f"{verdict}, but only at a false discovery rate of {q:.2g}"
    return Verdict("not decided", reason, "after the correction for all claims")
