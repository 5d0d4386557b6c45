"""Who judges a history: its books, and a judge for each promise."""

__all__: tuple[str, ...] = ()
