"""The demo: ``python -m keyshared.spark.demo``."""

from keyshared._checks import check_extra

check_extra("demo", "rich")

__all__: tuple[str, ...] = ()
