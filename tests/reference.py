"""Slow and obvious ways to compute what the pipeline computes fast; tests compare the two."""

import math

import numpy as np


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
