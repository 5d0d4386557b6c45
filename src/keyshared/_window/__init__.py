"""The in-flight window from inside: its lanes, its books, the gate of what drains, the index of who has room, its self-check."""

__all__: tuple[str, ...] = ()
