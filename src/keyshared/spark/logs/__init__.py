"""Logs to work on: your own files, and the real flights of 2013."""

__all__: tuple[str, ...] = ()
