"""How kinds of rings differ: what a point is made of, who may stand on it, who owns a contested slot."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from keyshared._checks import configuration
from keyshared.errors import ArgumentError
from keyshared.placement.protocol import check_name

__all__ = ["DANUBE_RULES", "DEFAULT_RULES", "RingRules", "pulsar_rules"]

_U64_STOP: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class RingRules:
    """The rules of one kind of ring, as a value.

    Attributes:
        point_text: What is hashed for a point: of the name, its number among those with equal points, and which point.
        check_name: Raises `ArgumentError` for a name that cannot stand on this ring.
        ties_by_join: A repeated point belongs to the consumer that joined first; otherwise to the smaller name.
        latest_owns_exact: The very slot of a repeated point belongs to the consumer that joined last.
        separator: What stands between the name that points are made of and the instance; None if names are whole.
    """

    point_text: Callable[[str, int, int], bytes]
    check_name: Callable[[object], None]
    ties_by_join: bool
    latest_owns_exact: bool
    separator: str | None = None

    def point_name(self, name: str) -> str:
        """Return the part of a consumer's name that its points are made of.

        Returns:
            What stands before the last separator; the whole name if there is none, or nothing before it.
        """
        if self.separator is None:
            return name
        return name.rpartition(self.separator)[0] or name


def _default_point_text(name: str, _: int, vnode: int) -> bytes:
    # the last NUL ends the name whatever the name holds: "a" + "11" and "a1" + "1" are not one point
    return b"%b\0%d" % (name.encode(), vnode)


def _danube_point_text(name: str, _: int, vnode: int) -> bytes:
    return b"%b-%d" % (name.encode(), vnode)


def _pulsar_point_text(name: str, index: int, vnode: int) -> bytes:
    return b"%b\0%d\0%d" % (name.encode(), index, vnode)


def _check_danube_id(name: object) -> None:
    decimal = isinstance(name, str) and name.isascii() and name.isdecimal() and str(int(name[:20])) == name
    if not decimal or int(str(name)) >= _U64_STOP:
        raise ArgumentError("name", name, "be a consumer id of Danube: the decimal digits of an unsigned 64-bit number")


DEFAULT_RULES: Final = RingRules(_default_point_text, check_name, ties_by_join=False, latest_owns_exact=False)
"""Ties do not depend on the order of joins."""

DANUBE_RULES: Final = RingRules(_danube_point_text, _check_danube_id, ties_by_join=True, latest_owns_exact=True)
"""Danube v0.15.1."""


@configuration()
def pulsar_rules(separator: str | None) -> RingRules:
    """Return the rules of Pulsar's consistent-hashing selector.

    Args:
        separator: See `RingRules`.

    Returns:
        The rules: the first comer keeps a contested point, and equal names are numbered.

    Raises:
        ConfigError: The separator is no text, or is empty.
    """
    if separator is not None:
        check_name(separator, "separator")
    return RingRules(_pulsar_point_text, check_name, ties_by_join=True, latest_owns_exact=False, separator=separator)
