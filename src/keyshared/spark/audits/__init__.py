"""Which promises a delivery log or a history breaks."""

__all__: tuple[str, ...] = ()
