"""One distributor: the flags of a record in, what to copy where out.

A cluster runs one distributor for each level above it in the tree. It copies to one cluster in each sibling subtree: in
a binary tree to one cluster, otherwise to several. Each of these links is a `Hop`, with a position of its own in the
cluster's log, so that a target that is down holds up no other target.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from keyshared._checks import check_several, check_text, configuration
from keyshared.copyflags import CopyFlags
from keyshared.errors import ArgumentError

__all__ = ["Copy", "CopyDecision", "Distributor", "Hop", "check_flags"]


_SHOWN_BITS: Final = 8  # as bits, like the page; more is easier to read as levels


class Copy(NamedTuple):
    """An instruction: append the record to the log of the cluster ``target``, with these flags in its header."""

    target: str
    flags: CopyFlags


class Hop(NamedTuple):
    """One link of the distribution: from a cluster, at a level, to a cluster of a sibling subtree.

    Attributes:
        cluster: The cluster that it reads.
        level: Level of the distributor that it belongs to.
        target: The cluster that it writes to.

    Example:
        >>> Hop("cluster 3", 1, "cluster 4").forward(CopyFlags(0b100))
        Copy(target='cluster 4', flags=CopyFlags(0b101))
        >>> Hop("cluster 3", 3, "cluster 1").forward(CopyFlags(0b100)) is None
        True
    """

    cluster: str
    level: int
    target: str

    def forward(self, flags: CopyFlags) -> Copy | None:
        """Return the copy of a record with these flags; None if that has been made already.

        Source:
            Axual "Distribution model", Copy flags and algorithm.
        """
        check_flags(flags)
        return Copy(self.target, flags.crossing(self.level)) if flags.is_due(self.level) else None

    def __str__(self) -> str:
        return f"{self.cluster!r} at level {self.level} to {self.target!r}"


@dataclass(frozen=True, slots=True)
class Distributor:
    """The distributor of one level on one cluster.

    Args:
        cluster: The cluster that it reads.
        level: Its level.
        targets: One cluster of each sibling subtree; kept as a tuple.

    Example:
        >>> Distributor("cluster 1", 3, ["cluster 3"]).copies(CopyFlags())
        (Copy(target='cluster 3', flags=CopyFlags(0b100)),)
    """

    cluster: str
    level: int
    targets: Sequence[str]

    @configuration()
    def __post_init__(self) -> None:
        check_text("cluster", self.cluster)
        CopyFlags.bit(self.level)
        targets = tuple(check_several("targets", self.targets, "clusters"))
        object.__setattr__(self, "targets", targets)
        if not targets:
            raise ArgumentError("targets", targets, "name a cluster of each sibling subtree")
        for target in targets:
            check_text("target", target)
        if len(set(targets)) < len(targets) or self.cluster in targets:
            raise ArgumentError("targets", targets, f"be different clusters, and not {self.cluster!r} itself")

    def copies(self, flags: CopyFlags) -> tuple[Copy, ...]:
        """Return one copy of a record for each sibling subtree, or none if that has been done already."""
        made = (hop.forward(flags) for hop in self.hops)
        return tuple(copy for copy in made if copy is not None)

    @property
    def hops(self) -> tuple[Hop, ...]:
        """Its links, one for each target."""
        return tuple(Hop(self.cluster, self.level, target) for target in self.targets)


class CopyDecision(NamedTuple):
    """The decision of one distributor about one record.

    Attributes:
        cluster: The cluster at which the record has arrived.
        flags: Its flags there.
        level: The distributor's level.
        copies: Its copies; none if one of the flags that it looks at is set.
    """

    cluster: str
    flags: CopyFlags
    level: int
    copies: tuple[Copy, ...]

    def __str__(self) -> str:
        head = f"{self.cluster} level {self.level}: "
        if self.flags.bit_length() <= _SHOWN_BITS and self.level <= _SHOWN_BITS:
            mask = CopyFlags.mask(self.level)
            head += f"{self.flags:04b} & {mask:04b} = {self.flags & mask:04b}"
            made = [f"{copy.target} with {copy.flags:04b}" for copy in self.copies]
        else:
            head += f"crossed {_listed(self.flags)}"
            made = [f"{copy.target} with {_listed(copy.flags)}" for copy in self.copies]
        return f"{head}, copies to {', '.join(made)}" if made else f"{head}, done already"


def check_flags(flags: object) -> None:
    """Refuse a plain int: it may be anything, and flags that are wrong lose records."""
    if type(flags) is not CopyFlags:
        raise ArgumentError("flags", flags, "be a CopyFlags, such as CopyFlags(0)")


def _listed(flags: CopyFlags) -> str:
    return "+".join(map(str, flags.levels)) or "nothing"
