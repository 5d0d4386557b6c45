"""Pages of HTML: their parts, charts, and trees of clusters."""

__all__: tuple[str, ...] = ()
