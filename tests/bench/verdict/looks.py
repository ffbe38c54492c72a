#!/usr/bin/env python3
"""Simulates how many rounds `consist compare --until-sure` takes until a difference is decided, and how often it is decided wrongly.
Usage: tests/bench/verdict/looks.py [--draws 1000] [--rounds 100]      (needs numpy)

Runs scatter normally about their side's speed, by logarithms. The rules are those of launch/verdict/{contrast,referee}.cpp: Welch's t of
three and four rounds, pairs from five on, a margin of 2%, the k-th look at the share 1/(k(k+1)) of 5%, half as many rounds between looks as
there are. No run is made: pairs.py does that."""
from __future__ import annotations

import argparse
import functools
import math
from typing import List, Tuple

import numpy as np
from numpy.typing import NDArray

SPREADS = (0.01, 0.02, 0.03, 0.06)
DIFFERENCES = (0.0, 0.01, 0.02, 0.05, 0.10)
WITHIN = 0.02


@functools.lru_cache(None)
def quantile(level: float, freedom: float) -> float:
    """The q for which Student's |t| lies below q with this probability, by the sum of its density."""
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    x = np.concatenate([np.linspace(0, 20, 40001), np.geomspace(20.001, 1e5, 40000)])
    density = scale * (1 + x * x / freedom) ** (-(freedom + 1) / 2)
    below = 2 * np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(x))])
    return float(np.interp(level, below, x))


def interval(a: NDArray[np.float64], b: NDArray[np.float64], level: float) -> Tuple[float, float]:
    """Ratio of B over A, from logarithms of as many runs of each."""
    count = len(a)
    if count >= 5:
        mean, error, freedom = float((b - a).mean()), float((b - a).std(ddof=1)) / math.sqrt(count), count - 1.0
    else:
        of_a, of_b = float(a.var(ddof=1)) / count, float(b.var(ddof=1)) / count
        mean, error = float(b.mean() - a.mean()), math.sqrt(of_a + of_b)
        freedom = round((of_a + of_b) ** 2 / ((of_a ** 2 + of_b ** 2) / (count - 1)), 1)
    half = quantile(round(level, 8), max(1.0, freedom)) * error
    return math.exp(mean - half), math.exp(mean + half)


def decide(random: np.random.Generator, spread: float, difference: float, most: int) -> Tuple[str, int]:
    """Draws the runs of a pair, of which B is slower by `difference`; returns the call and the rounds that it took."""
    a, b = spread * random.standard_normal(most), math.log(1 - difference) + spread * random.standard_normal(most)
    rounds, look = 3, 1
    while rounds <= most:
        low, high = interval(a[:rounds], b[:rounds], 1 - 0.05 / (look * (look + 1)))
        if low >= 1 - WITHIN and high <= 1 + WITHIN:
            return "same", rounds
        if low > 1 or high < 1:
            return "faster" if low > 1 else "slower", rounds
        rounds += max(1, rounds // 2)
        look += 1
    return "unclear", most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=100, help="at most")
    given = parser.parse_args()
    random = np.random.default_rng(1)
    print("spread of runs  difference  slower  same  unclear  wrong  rounds: median, nine of ten")
    for spread in SPREADS:
        for difference in DIFFERENCES:
            calls: List[Tuple[str, int]] = [decide(random, spread, difference, given.rounds) for _ in range(given.draws)]
            share = {name: sum(call == name for call, _ in calls) / given.draws for name in ("slower", "faster", "same", "unclear")}
            wrong = share["faster"] + (share["slower"] if difference == 0 else 0.0)
            rounds = np.array([taken for _, taken in calls])
            print(f"{spread:14.0%}  {difference:10.0%}  {share['slower']:6.1%}  {share['same']:4.0%}  {share['unclear']:7.1%}  {wrong:5.1%}"
                  f"  {np.median(rounds):6.0f}  {np.percentile(rounds, 90):6.0f}")


if __name__ == "__main__":
    main()
