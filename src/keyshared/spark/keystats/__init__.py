"""What the keys of a log weigh, and what that means for owners and bucket boundaries."""

__all__: tuple[str, ...] = ()
