"""Results as tables: what the columns of each are, and how they are saved and loaded."""

__all__: tuple[str, ...] = ()
