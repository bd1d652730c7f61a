"""Slow and obvious ways to compute what the pipeline computes fast; tests compare the two."""

import math

import numpy as np
from scipy.optimize import minimize


def one_row_per_impression(impressions, responses, *columns):
    """Labels, then the columns: a row of n impressions and r responses as n rows, r of them 1."""
    labels = [
        1 if i < r else 0 for n, r in zip(impressions, responses, strict=True) for i in range(n)
    ]
    return np.array(labels, dtype=int), *(np.repeat(c, impressions) for c in columns)


def auc_by_pairs(logit, label):
    """AUC by looking at every pair of a response and a non-response; NaN without such pairs."""
    wins = [
        1.0 if a > b else 0.5 if a == b else 0.0
        for a in logit[label == 1]
        for b in logit[label == 0]
    ]
    return sum(wins) / len(wins) if wins else math.nan


def field_auc_by_pairs(logit, label, value):
    """Field-AUC and its share of rows, one field value after the other."""
    total = rows = 0.0
    for z in np.unique(value):
        of_z = auc_by_pairs(logit[value == z], label[value == z])
        if not math.isnan(of_z):
            total += (value == z).sum() * of_z
            rows += (value == z).sum()
    return (total / rows if rows else math.nan), rows / len(value)


def field_rce_by_rows(probability, label, value):
    """The paper's Field-RCE over the rows of field values that have a response."""
    total = rows = 0.0
    for z in np.unique(value):
        y, p = label[value == z], probability[value == z]
        if y.sum() > 0:
            total += abs(sum(y - p)) / (y.sum() / len(y))
            rows += len(y)
    return total / rows if rows else math.nan


def equal_frequency_cuts(ascending, requested):
    """Ranks at which the bins of one field value start, from its impressions' logits in order."""
    cuts = {0}
    for k in range(1, requested):
        rank = k * len(ascending) // requested
        before = sum(x < ascending[rank] for x in ascending)
        through = sum(x <= ascending[rank] for x in ascending)
        cut = before if rank - before <= through - rank else through
        if 0 < cut < len(ascending):
            bound = float_between(ascending[cut - 1], ascending[cut])
            if bound < ascending[-1]:
                cuts.add(cut)
    return sorted(cuts)


def float_between(left, right):
    """The float32 in the middle of two float32, or the right one where none lies between."""
    middle = np.float32((float(left) + float(right)) / 2)
    return middle if middle > left else np.float32(right)


def bins_by_loops(scores, requested):
    """One dict per bin: field value, number, bounds, and the rows' (logit, label, day) inside."""
    label, logit, value, day = one_row_per_impression(
        scores.impressions,
        scores.responses,
        scores.uncalibrated_logit,
        scores.field_value_id,
        scores.day,
    )
    bins = []
    for z in sorted(set(value.tolist())):
        rows = sorted(zip(logit[value == z], label[value == z], day[value == z], strict=True))
        ascending = [x for x, _, _ in rows]
        cuts = equal_frequency_cuts(ascending, requested)
        ends = [*cuts[1:], len(rows)]
        bounds = [ascending[0], *(float_between(ascending[c - 1], ascending[c]) for c in cuts[1:])]
        for k, (start, end) in enumerate(zip(cuts, ends, strict=True)):
            bins.append(
                {
                    "field_value_id": z,
                    "effective_bins": len(cuts),
                    "bin_id": k,
                    "lower_bound": bounds[k],
                    "upper_bound": [*bounds, ascending[-1]][k + 1],
                    "rows": rows[start:end],
                }
            )
    return bins


def base_logit(weights, sizes, categorical, numeric):
    """The base network's logit, one row and one unit at a time, in float64."""
    size = sizes["embedding_size"]
    first = [sum(sizes["vocabulary_sizes"][:c]) for c in range(len(sizes["vocabulary_sizes"]))]
    n_layers = len(sizes["hidden_sizes"]) + 1
    logits = []
    for ids, numbers in zip(categorical, numeric, strict=True):
        inputs = []
        for position, value in enumerate(ids):
            inputs += [weights["embedding.weight"][first[position] + value][i] for i in range(size)]
        inputs += list(numbers)
        for layer in range(n_layers):
            matrix, bias = (weights[f"layers.{2 * layer}.{part}"] for part in ("weight", "bias"))
            outputs = [
                sum(float(w) * float(x) for w, x in zip(row, inputs, strict=True)) + float(b)
                for row, b in zip(matrix, bias, strict=True)
            ]
            inputs = outputs if layer == n_layers - 1 else [max(0.0, x) for x in outputs]
        logits.append(inputs[0])
    return np.array(logits)


def platt_under_a_normal_prior(rows, center, mean, covariance):
    """(offset, slope) of the posterior mode of one field value, by a general-purpose minimiser.

    Rows are (logit - center, impressions, responses).
    """
    centred, impressions, responses = rows

    def loss(theta):
        logit = center + theta[0] + theta[1] * centred
        away = theta - mean
        penalty = 0.5 * away @ np.linalg.solve(covariance, away)
        return (impressions * np.logaddexp(0, logit) - responses * logit).sum() + penalty

    return minimize(loss, np.array([0.0, 1.0]), method="Nelder-Mead", options={"xatol": 1e-9}).x


def inner_bounds(bins, requested_bins, n_field_values):
    """float32 [n_field_values, K - 1]: inner bounds of one candidate of a bin table, then +inf.

    `bin_id = (logit[:, None] >= inner_bounds[field_value_id]).sum(1)`.
    """
    inner = bins.candidate(requested_bins).take(bins.candidate(requested_bins).bin_id > 0)
    bounds = np.full((n_field_values, requested_bins - 1), np.inf, dtype=np.float32)
    bounds[inner.field_value_id, inner.bin_id - 1] = inner.lower_bound
    return bounds


def lines_by_dense_algebra(variances, spread, usual, center, *, lines, noise):
    """Means and deviations [Z, 2] of (level, slope) on the day after days of certain lines.

    All lines of all values and days are one normal vector; it is conditioned on what was seen.

    Args:
        variances: `Variances` of what differs and moves.
        spread: variances of the shared lasting level, line and slope.
        usual: x̄ [Z].
        center: c.
        lines: (level, slope) that were seen, [days, Z, 2].
        noise: variance of their errors.
    """
    days, n_values, _ = lines.shape
    v, (lasting, line, slope) = variances, spread
    day, value = (index.ravel() for index in np.indices((days + 1, n_values)))
    apart = np.abs(day[:, None] - day)
    today, mine = apart == 0, value[:, None] == value
    slow, fast, shared_fast = (np.exp(-apart / days) for days in (30.0, 3.0, 1.5))
    tilt = np.outer((usual - center)[value], (usual - center)[value])
    levels = mine * (v.lasting + v.slow * slow + v.fast * fast + v.day * today)
    levels = levels + lasting + v.shared_slow * slow + v.shared_fast * shared_fast
    levels = levels + v.shared_day * today + line * tilt
    slopes = mine * v.slope + slope
    moments = []
    for covariance, mean, seen in ((levels, usual[value], lines[..., 0]),
                                   (slopes, np.ones(len(value)), lines[..., 1])):  # fmt: skip
        n = days * n_values
        known = covariance[:n, :n] + noise * np.eye(n)
        weights = np.linalg.solve(known, covariance[:n, n:])
        middle = mean[n:] + weights.T @ (seen.ravel() - mean[:n])
        left = covariance[n:, n:] - covariance[n:, :n] @ weights
        moments.append((middle, np.sqrt(np.maximum(np.diagonal(left), 0.0))))
    return tuple(np.stack(each, axis=1) for each in zip(*moments, strict=True))
