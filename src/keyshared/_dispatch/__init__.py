"""The dispatcher from inside: one module for each question that its inputs ask."""

__all__: tuple[str, ...] = ()
