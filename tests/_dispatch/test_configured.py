"""The window that a configuration asks for."""

from keyshared._dispatch.configured import window_for
from keyshared._dispatch.unit_gate import UnitGate
from keyshared._window.gate import KeyGate
from keyshared.config import DispatcherConfig, DrainUnit
from keyshared.placement.ranges import RangeMap


class Owners:
    """Nobody owns anything."""

    ranges = RangeMap([], slot_bits=1)

    def owner(self, key: bytes) -> str | None:
        """Name of the owner."""
        return self.ranges.owner_of(key)


def test_a_larger_unit_gets_a_gate_of_its_own() -> None:
    kinds = {unit: type(window_for(DispatcherConfig(unit=unit), Owners())._gate) for unit in DrainUnit}
    assert {DrainUnit.KEY: KeyGate, DrainUnit.HASH: UnitGate, DrainUnit.RANGE: UnitGate} == kinds
