"""Thin PySpark adapter (under construction)."""
