"""What the value of a key of params.yaml may be."""

from datetime import date
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field


def _quoted(day: Any) -> Any:
    if isinstance(day, date):
        raise ValueError(f'a date is quoted: "{day:%Y-%m-%d}"')
    return day


def _in_calendar(day: str) -> str:
    date.fromisoformat(day)
    return day


LARGEST = 2**31 - 1  # of counts: what a column of int32 holds
Count = Annotated[int, Field(ge=1, le=LARGEST)]
Number = Annotated[int, Field(ge=0, le=LARGEST)]
Days = Annotated[int, Field(ge=0, le=3660)]
Day = Annotated[
    str,
    Field(pattern=r"^\d{4}-\d{2}-\d{2}$"),
    BeforeValidator(_quoted),
    AfterValidator(_in_calendar),
]
Share = Annotated[float, Field(ge=0, le=1)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]
Factor = Annotated[float, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
KeepRate = Annotated[float, Field(ge=2**-20, le=1)]
NotNegative = Annotated[float, Field(ge=0)]
