"""Scores of predictions beside published figures: order within sweeps, what the best choice costs, and whether a layout fits."""
import itertools
import math


def order(rows, close=0.02):
    """Of pairs of a sweep's rows: (ordered as published, the other way, predicted alike). Pairs published within `close` do not count."""
    right = wrong = tied = 0
    for a, b in itertools.combinations(rows, 2):
        published = math.log(a["published"] / b["published"])
        predicted = math.log(a["predicted"] / b["predicted"])
        if abs(published) <= math.log1p(close):
            continue
        if abs(predicted) < 1e-6:
            tied += 1
        elif (published > 0) == (predicted > 0):
            right += 1
        else:
            wrong += 1
    return right, wrong, tied


def kendall(counts):
    """Tau of the pairs that count; None without any."""
    right, wrong, tied = counts
    pairs = right + wrong + tied
    return (right - wrong) / pairs if pairs else None


def regret(rows):
    """The speed that is lost, by what was published, if the layout that is predicted to be fastest is taken. Of several that are
    predicted alike it is the slowest. Fraction, 0..1."""
    most = max(r["predicted"] for r in rows)
    taken = min(r["published"] for r in rows if r["predicted"] > most * (1 - 1e-6))
    return 1 - taken / max(r["published"] for r in rows)


def sweeps_of(rows):
    """{sweep: its rows with a published speed}, of two rows and more."""
    sweeps = {}
    for row in rows:
        if row["sweep"] and row.get("published"):
            sweeps.setdefault(row["sweep"], []).append(row)
    return {name: members for name, members in sweeps.items() if len(members) > 1}


def fits_matrix(rows):
    """{(outcome, predicted to fit): rows}, outcome "ran" or "oom"."""
    counts = {(outcome, fits): 0 for outcome in ("ran", "oom") for fits in (True, False)}
    for row in rows:
        counts[row["outcome"], row["fits"]] += 1
    return counts


def spread(ratios):
    """Geometric mean of predicted over published; mean and largest distance from it, as fractions."""
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    distances = [abs(r / mean - 1) for r in ratios]
    return mean, sum(distances) / len(distances), max(distances)
