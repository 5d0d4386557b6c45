"""A dispatcher for each topic-partition of a Spark stream."""

__all__: tuple[str, ...] = ()
