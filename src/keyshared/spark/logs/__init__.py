"""Logs to work on: your own files, and real flights."""

__all__: tuple[str, ...] = ()
