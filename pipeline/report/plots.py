"""What stands beside the page: tables for `dvc plots`, a picture where no script runs."""

import pandas as pd

from pipeline.report.charts import Spec, static
from pipeline.report.page_data import day_rows, drawn_bins
from pipeline.report.terminal import NAMES


def plot_files(counts: pd.DataFrame, bins: pd.DataFrame, reliability: Spec) -> dict[str, str]:
    """Texts by file name: reliability of all rows (log-odds), and PCOC and rates by test day."""
    drawn = drawn_bins(bins[bins["field_value_id"] == -1]).replace({"method": NAMES})
    columns = ["method", "predicted", "observed", "low", "high", "impressions", "responses"]
    return {
        "reliability.csv": drawn[columns].round(4).to_csv(index=False),
        "days.csv": pd.DataFrame(day_rows(counts)).to_csv(index=False),
        "reliability.svg": static(reliability, drawn[columns].to_dict("records")),
    }
