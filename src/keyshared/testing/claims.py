"""What a system claims, as a text that can stand in a file beside its histories."""

import tomllib
from dataclasses import fields
from typing import Any, Final

from keyshared.testing._given import check_kind
from keyshared.testing.errors import GuaranteesError
from keyshared.testing.guarantees import Guarantees

__all__ = ["read_claims"]

_ANY: Final = "any"  # TOML has no null


def read_claims(text: str) -> Guarantees:
    r"""Read claims from TOML: what is not written is claimed as `Guarantees` has it by default.

    Args:
        text: Names of `Guarantees` with their values; a number without a limit is ``"any"``. What is claimed by a
            function (``unit_of``, ``group_of``, ``weight_of``, ``limit_of``, ``look_ahead``) cannot be written.

    Raises:
        GuaranteesError: The text is no TOML, or claims something that does not exist, or that can never be kept.

    Example:
        >>> claims = read_claims('promises = ["key-order", "no-loss"]\nper_key = "any"\nmay_drop = true')
        >>> sorted(claims.promises), claims.per_key, claims.may_drop
        ([<Promise.KEY_ORDER: 'key-order'>, <Promise.NO_LOSS: 'no-loss'>], None, True)
        >>> read_claims("per_keys = 2")
        Traceback (most recent call last):
        keyshared.testing.errors.GuaranteesError: per_keys is 2; it must be left out: no claim that can be written
    """
    check_kind("text", text, str)
    try:
        claims: dict[str, Any] = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise GuaranteesError("text", text, f"be TOML ({error})") from None
    for name, value in claims.items():
        if name not in _WRITABLE:
            raise GuaranteesError(name, value, "be left out: no claim that can be written")
        if value == _ANY and name in _NUMBERS:
            claims[name] = None
    return Guarantees(**claims)


_NUMBERS: Final = frozenset(each.name for each in fields(Guarantees) if each.type == int | None)
_FLAGS: Final = frozenset({"latest_only", *(each.name for each in fields(Guarantees) if each.type is bool)})
_WRITABLE: Final = _NUMBERS | _FLAGS | {"promises", "tolerance_ms"}
