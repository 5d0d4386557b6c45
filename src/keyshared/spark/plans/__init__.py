"""Plans as files: read, compared with one another, and weighed against a log. Plain Python; needs no Spark."""

__all__: tuple[str, ...] = ()
