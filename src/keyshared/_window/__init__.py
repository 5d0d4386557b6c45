"""The in-flight window from inside: its lanes, its books, its drain gate, who has room, its self-check."""

__all__: tuple[str, ...] = ()
