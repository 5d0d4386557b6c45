"""Names of topics, groups and schema subjects on several clusters, and schemas that keep their ids."""

from keyshared.subjects.names import (
    SUBJECT_SUFFIXES,
    Collision,
    NamePattern,
    NamePlan,
    NameProblem,
    NameTranslation,
    ParsedName,
    Problem,
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
    Held,
    Register,
    SchemaDistribution,
    SchemaPlan,
    SetCompatibility,
    SoftDelete,
    Step,
)

__all__ = [
    "DEFAULT_COMPATIBILITY",
    "SUBJECT_SUFFIXES",
    "Clash",
    "ClashReason",
    "Collision",
    "Compatibility",
    "Conflict",
    "Held",
    "Mode",
    "NamePattern",
    "NamePlan",
    "NameProblem",
    "NameTranslation",
    "ParsedName",
    "Problem",
    "Reference",
    "Register",
    "Registration",
    "RegistryView",
    "SchemaDistribution",
    "SchemaPlan",
    "SetCompatibility",
    "SoftDelete",
    "Step",
]
