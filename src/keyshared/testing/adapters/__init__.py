"""Histories and drivers of keyshared's own dispatcher, router, leases, window and simulation."""

__all__: tuple[str, ...] = ()
