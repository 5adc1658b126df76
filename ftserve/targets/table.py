"""The serving targets for which files are written. A new one is a module of this room and a row here."""

from __future__ import annotations

from ftserve.targets.apptainer import Apptainer
from ftserve.targets.compose import Compose
from ftserve.targets.grafana import Dashboard
from ftserve.targets.kserve import Service
from ftserve.targets.kubernetes import Cluster
from ftserve.targets.target import Target

ALL: tuple[type[Target], ...] = (Compose, Cluster, Service, Dashboard, Apptainer)
