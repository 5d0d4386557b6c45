"""What every job does with a frame: look at its columns, pack whole partitions, keep what came out."""

__all__: tuple[str, ...] = ()
