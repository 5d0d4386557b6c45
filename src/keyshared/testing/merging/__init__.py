"""Logs of several processes become one history, by what must have happened before what."""
