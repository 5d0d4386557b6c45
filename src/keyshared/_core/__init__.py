"""The unchecked core of the dispatcher and of the window: arguments are checked by the public faces, and not here."""

__all__: tuple[str, ...] = ()
