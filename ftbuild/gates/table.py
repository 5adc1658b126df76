"""The gates, in the order in which a cell passes them. A new one is a package of this room and a row here."""

from __future__ import annotations

from ftbuild.gates.cell_test import CellTest
from ftbuild.gates.smoke.gate import Smoke
from ftbuild.gates.unittests.gate import UnitTests
from ftbuild.gates.verify.gate import Verify

# What a cell must pass to be published.
REQUIRED: tuple[type[CellTest], ...] = (Verify, Smoke)
ALL: tuple[type[CellTest], ...] = (*REQUIRED, UnitTests)
