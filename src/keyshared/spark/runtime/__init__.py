"""The session, and how far it is."""

__all__: tuple[str, ...] = ()
