"""Per-key ordered, multi-consumer dispatch: pure, sans-IO primitives and the dispatcher that composes them."""

__version__ = "0.1.0"
