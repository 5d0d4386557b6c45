"""The demo: ``python -m keyshared.spark.demo``."""

__all__: tuple[str, ...] = ()
