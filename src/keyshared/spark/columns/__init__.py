"""Slots, owners, buckets and copies of a row, as native columns and as plain iterators."""

__all__: tuple[str, ...] = ()
