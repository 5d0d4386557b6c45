"""Names of topics, groups and schema subjects on several clusters, and schemas that keep their ids."""

from keyshared.subjects.names import (
    SUBJECT_SUFFIXES,
    Collision,
    NameIssue,
    NamePattern,
    NamePlan,
    NameProblem,
    NameTranslation,
    ParsedName,
)
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
    SchemaPlan,
    SetCompatibility,
    SoftDelete,
)

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
    "NamePlan",
    "NameProblem",
    "NameTranslation",
    "ParsedName",
    "Reference",
    "Register",
    "Registration",
    "RegistryStep",
    "RegistryView",
    "SchemaDistribution",
    "SchemaPlan",
    "SetCompatibility",
    "SoftDelete",
]
