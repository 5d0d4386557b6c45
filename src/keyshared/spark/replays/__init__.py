"""Logs run through the dispatcher and simulated consumers, by one plan or by several."""

__all__: tuple[str, ...] = ()
