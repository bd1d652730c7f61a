"""Days by name, "YYYY-MM-DD", and by number, days since 1970-01-01."""

from datetime import date, timedelta

from pipeline.core.errors import DataError

EPOCH = date(1970, 1, 1)


def day_number(day: str) -> int:
    """Days from 1970-01-01 to `day`, which is spelled "YYYY-MM-DD".

    Raises:
        DataError: `day` is not a date in that spelling.
    """
    try:
        number = (date.fromisoformat(day) - EPOCH).days
    except ValueError:
        number = None
    if number is None or day_name(number) != day:
        raise DataError(f"a day is spelled YYYY-MM-DD, got {day!r}, no such day of the calendar")
    return number


def day_name(number: int) -> str:
    """The day `number` days after 1970-01-01, spelled "YYYY-MM-DD".

    Raises:
        DataError: the day is not in the years 1 to 9999.
    """
    try:
        return (EPOCH + timedelta(days=int(number))).isoformat()
    except OverflowError:
        raise DataError(f"{number} days from 1970-01-01 is in no calendar year") from None
