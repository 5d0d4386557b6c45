"""Every fault that the kit has to find."""

from tests.kit.broken_celeriant import FAULTS as CELERIANT
from tests.kit.broken_danube import FAULTS as DANUBE
from tests.kit.broken_others import FAULTS as OTHERS
from tests.kit.broken_pulsar import FAULTS as PULSAR

__all__ = ["FAULTS"]

FAULTS = (*DANUBE, *CELERIANT, *PULSAR, *OTHERS)
