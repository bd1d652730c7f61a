"""python -m bench.auction: what calibration is worth in simulated auctions whose truth is known.

1. Every auction draws eight candidates from the rows of a simulated log, where a field value is one
advertiser with a private value of a response, lognormal (0, 0.5), and a budget: what it would spend
under the true probabilities without budgets, times a lognormal (0, 0.5) factor.
2. Candidates are ranked by bid × predicted probability; advertisers bid their value in second-price
auctions and 0.7 of it in first-price ones, whatever the method, and do not learn.
3. The winner pays for each response: in second-price auctions what would just have won, divided by
its predicted probability, in first-price ones its bid.
4. Who has spent the budget leaves, which is looked at every 100 auctions; there is no pacing and no
reserve price.
5. Expected responses are counted, by the true probabilities, so nothing depends on drawn labels.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import expit
from scipy.stats import t

from bench.quality import fit_of
from bench.quality_cases import Case, simulated_case
from bench.quality_tables import aligned
from pipeline.core.files import write_json
from pipeline.metrics.significance import jackknife_interval

METHODS = ("identity", "isotonic", "eb_platt", "adacalib", "truth")
FORMS = ("second-price", "first-price")
SHADING = 0.7  # of a value, bid in first-price auctions
CANDIDATES = 8
BLOCK = 100  # auctions between two looks at the budgets
MEASURES = ("welfare", "revenue", "surplus", "delivery")
SHOWN = (*(f"{name} against base" for name in MEASURES[:3]), "delivery", "share of gain")
Compared = dict[str, dict[str, dict[str, float]]]
"""Of one seed, by form, method and measure."""


@dataclass(frozen=True)
class Auctions:
    """Auctions in the order in which they are held.

    Attributes:
        advertiser: int [auctions, candidates], numbers from 0 on.
        truth: float64, same shape, true response probabilities.
        value: float64 [advertisers], what a response is worth to each.
    """

    advertiser: np.ndarray
    truth: np.ndarray
    value: np.ndarray


@dataclass(frozen=True)
class Outcome:
    """What auctions came to, in expectation.

    Attributes:
        welfare: Σ value × true probability of the winners.
        spent: float64 [advertisers], what each paid.
    """

    welfare: float
    spent: np.ndarray

    def measures(self, budget: np.ndarray) -> dict[str, float]:
        """MEASURES: delivery is the share of all budgets that was spent, each at most its own."""
        revenue = float(self.spent.sum())
        delivery = float(np.minimum(self.spent, budget).sum() / budget.sum())
        named = (self.welfare, revenue, self.welfare - revenue, delivery)
        return dict(zip(MEASURES, named, strict=True))


def hold(
    auctions: Auctions, predicted: np.ndarray, budget: np.ndarray, form: str, block: int = BLOCK
) -> Outcome:
    """The outcome of ranking by bid × predicted probability.

    Args:
        auctions: the auctions.
        predicted: float64 in (0, 1), of every candidate.
        budget: float64 [advertisers]; infinite: without.
        form: one of FORMS.
        block: auctions between two looks at the budgets.
    """
    bid = auctions.value * (SHADING if form == "first-price" else 1.0)
    spent, welfare = np.zeros(len(bid)), 0.0
    for start in range(0, len(predicted), block):
        rows = slice(start, start + block)
        who, p, true = auctions.advertiser[rows], predicted[rows], auctions.truth[rows]
        score = np.where(spent[who] < budget[who], bid[who] * p, 0.0)
        order = np.argsort(score, axis=1, kind="stable")
        at, winner, second = np.arange(len(who)), order[:, -1], order[:, -2]
        held = score[at, winner] > 0
        price = bid[who[at, winner]]
        if form == "second-price":
            price = score[at, second] / p[at, winner]
        chance = true[at, winner] * held
        spent += np.bincount(who[at, winner], chance * price, len(bid))
        welfare += float((chance * auctions.value[who[at, winner]]).sum())
    return Outcome(welfare, spent)


def drawn_auctions(case: Case, seed: int) -> tuple[Auctions, np.ndarray]:
    """Auctions of the case's test rows, and the row of each candidate."""
    rng = np.random.default_rng([seed, 1])
    n = len(case.test) // CANDIDATES
    rows = rng.permutation(len(case.test))[: n * CANDIDATES].reshape(n, CANDIDATES)
    assert case.true_probability is not None
    value = rng.lognormal(0, 0.5, case.test.n_field_values)
    ids = case.test.field_value_id[rows]
    return Auctions(ids, case.true_probability[rows], value), rows


def compared(seed: int, rows: int, values: int) -> Compared:
    """MEASURES, and what each is against the base's, by form and method, of one seed."""
    case = simulated_case(seed, rows, values)
    auctions, picked = drawn_auctions(case, seed)
    predicted = {"truth": auctions.truth}
    for method in METHODS[:-1]:
        fitted = fit_of(method)(case.calibration)
        logit = fitted(case.test.uncalibrated_logit, case.test.field_value_id)
        predicted[method] = expit(logit)[picked]
    endless = np.full(len(auctions.value), np.inf)
    factor = np.random.default_rng([seed, 2]).lognormal(0, 0.5, len(endless))
    found = {}
    for form in FORMS:
        budget = hold(auctions, auctions.truth, endless, form).spent * factor
        of = {m: hold(auctions, predicted[m], budget, form).measures(budget) for m in METHODS}
        for measured in of.values():
            for name in MEASURES[:3]:
                measured[f"{name} against base"] = measured[name] / of["identity"][name] - 1
        found[form] = of
    return found


def interval(sample: list[float]) -> tuple[float, float, float]:
    """Mean of seeds with its 95 % interval by Student's t."""
    mean, n = float(np.mean(sample)), len(sample)
    half = float(t.ppf(0.975, n - 1) * np.std(sample, ddof=1) / np.sqrt(n))
    return mean, mean - half, mean + half


def share_of_gain(welfare: np.ndarray) -> tuple[float, float, float]:
    """Share of the truth's welfare gain on the base, with its 95 % jackknife interval over seeds.

    Args:
        welfare: float64 [seeds, 3], of a method, of the base and of the truth.
    """
    gains = np.column_stack([welfare[:, 0] - welfare[:, 1], welfare[:, 2] - welfare[:, 1]])
    value = float(gains[:, 0].sum() / gains[:, 1].sum())
    left = gains.sum(axis=0) - gains
    return value, *jackknife_interval(value, left[:, 0] / left[:, 1], 0.95)


def summary(runs: list[Compared], form: str) -> dict[str, dict[str, tuple[float, float, float]]]:
    """Of each method, by measure, the mean over seeds with its interval."""
    found = {}
    for method in METHODS:
        welfare = [[run[form][m]["welfare"] for m in (method, "identity", "truth")] for run in runs]
        found[method] = {
            name: interval([run[form][method][name] for run in runs])
            for name in runs[0][form][method]
        } | {"share of gain": share_of_gain(np.array(welfare))}
    return found


def main() -> None:
    """Hold the auctions, print the tables, and write the JSON where asked."""
    parser = argparse.ArgumentParser(prog="python -m bench.auction", description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000, help="calibration rows")
    parser.add_argument("--values", type=int, default=300, help="advertisers")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    runs = []
    for seed in range(options.seeds):
        print(f"seed {seed}", file=sys.stderr, flush=True)
        runs.append(compared(seed, options.rows, options.values))
    means = {form: summary(runs, form) for form in FORMS}
    for form, of in means.items():
        print(f"\n{form}, {options.seeds} seeds")
        cells = [
            [m, *("{:.1%} ({:.1%} to {:.1%})".format(*of[m][name]) for name in SHOWN)]
            for m in METHODS
        ]
        print(aligned([["ranked by bid ×", *SHOWN], *cells]))
    if options.json:
        write_json(options.json, {"intervals": means, "seeds": runs})


if __name__ == "__main__":
    main()
