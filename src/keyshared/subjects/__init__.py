"""Names of topics, groups and schema subjects on several clusters, and schemas that keep their ids.

A bad argument raises `ArgumentError` (a setting `ConfigError`) and changes nothing; docstrings name other errors.

>>> NamePattern("{tenant}-{topic}").parse("acme-orders")["topic"]
'orders'
"""

from keyshared.subjects.names import SUBJECT_SUFFIXES, NameIssue, NamePattern, NameProblem, ParsedName
from keyshared.subjects.registry import (
    DEFAULT_COMPATIBILITY,
    Compatibility,
    Mode,
    Reference,
    Registration,
    RegistryView,
)
from keyshared.subjects.schemas import (
    Clash,
    ClashReason,
    Conflict,
    HeldStep,
    Register,
    RegistryStep,
    SchemaDistribution,
    SchemaProposal,
    SetCompatibility,
    SoftDelete,
)
from keyshared.subjects.translation import Collision, NameTranslation, ResolvedNames

__all__ = [
    "DEFAULT_COMPATIBILITY",
    "SUBJECT_SUFFIXES",
    "Clash",
    "ClashReason",
    "Collision",
    "Compatibility",
    "Conflict",
    "HeldStep",
    "Mode",
    "NameIssue",
    "NamePattern",
    "NameProblem",
    "NameTranslation",
    "ParsedName",
    "Reference",
    "Register",
    "Registration",
    "RegistryStep",
    "RegistryView",
    "ResolvedNames",
    "SchemaDistribution",
    "SchemaProposal",
    "SetCompatibility",
    "SoftDelete",
]
