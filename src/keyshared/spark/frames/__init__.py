"""What every job does with a frame: check its columns, pack whole partitions, keep the results."""

__all__: tuple[str, ...] = ()
