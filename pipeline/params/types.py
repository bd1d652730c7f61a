"""What the value of a key of params.yaml may be."""

from datetime import date
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field


def _quoted(day: Any) -> Any:
    if isinstance(day, date):
        raise ValueError(f'a date is quoted: "{day:%Y-%m-%d}"')
    return day


def _in_calendar(day: str) -> str:
    try:
        date.fromisoformat(day)
    except ValueError:
        raise ValueError("there is no such day in the calendar") from None
    return day


def _fits(number: int) -> int:
    if number > LARGEST:
        raise ValueError(f"it may be at most {LARGEST}")
    return number


LARGEST = 2**31 - 1  # of counts: what a column of int32 holds
Count = Annotated[int, Field(ge=1), AfterValidator(_fits)]
Number = Annotated[int, Field(ge=0), AfterValidator(_fits)]
Days = Annotated[int, Field(ge=0, le=3660)]
Seed = Number
Day = Annotated[
    str,
    Field(pattern=r"^\d{4}-\d{2}-\d{2}$"),
    BeforeValidator(_quoted),
    AfterValidator(_in_calendar),
]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
KeepRate = Annotated[float, Field(ge=2**-20, le=1)]
NotNegative = Annotated[float, Field(ge=0)]
