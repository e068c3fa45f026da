# Computes with dates and time zones.
#> 2024-03-01 366 2024-07-01T10:00:00+00:00
from datetime import date, datetime, timedelta, timezone
print(date(2024, 2, 29) + timedelta(days=1), (date(2025, 1, 1) - date(2024, 1, 1)).days,
      datetime(2024, 7, 1, 12, tzinfo=timezone(timedelta(hours=2))).astimezone(timezone.utc).isoformat())
