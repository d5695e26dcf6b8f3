"""Where prices come from, and why some options have none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from libra_plan.errors import RefusedError
from libra_plan.models.fit import FittedProfile
from libra_plan.models.fits import Fits, fit_name
from libra_plan.models.sharing import whole_class
from libra_plan.models.topology import Cluster
from libra_plan.profiles.catalog import LoadedProfile
from libra_plan.profiles.schema import SharedRate, SwitchingFile
from libra_plan.profiles.switch_costs import SwitchPrice

__all__ = ["Prices", "Refusals"]


@dataclass(frozen=True)
class Prices:
    """Where prices come from: the cluster, the profiles with their fits, the switching figures.

    `moves` are the recorded costs of moving tasks, by task.
    """

    cluster: Cluster
    profiles: Mapping[str, LoadedProfile]
    fits: Fits
    switching: Mapping[str, SwitchingFile]
    allow_prior: bool = False
    moves: Mapping[str, SwitchPrice] = field(default_factory=dict)

    def fitted(self, profile: LoadedProfile) -> FittedProfile:
        """Return the fit of a profile, or raise the refusal to fit it."""
        found = self.fits[fit_name(profile)]
        if isinstance(found, RefusedError):
            raise found
        return found

    def sharing(self, gpu_class: str) -> tuple[SharedRate, ...]:
        """Give what was measured of two processes on one GPU, for the class of a seat."""
        switching = self.switching.get(whole_class(gpu_class))
        return () if switching is None else switching.shared_gpu


@dataclass
class Refusals:
    """Collect why options were left out: one line per form of the role and kind of reason."""

    _found: dict[tuple[str, str], tuple[str, list[int]]] = field(default_factory=dict)

    def add(self, form: str, refusal: RefusedError | str, replicas: int | None = None) -> None:
        """Note a reason against a form (class and layout), or against one replica count of it.

        Refusals of one kind share a line, with the figures of the first of them.
        """
        kind, message = (refusal, refusal) if isinstance(refusal, str) else (refusal.what, refusal.message)
        _, counts = self._found.setdefault((form, kind), (message, []))
        if replicas is not None:
            counts.append(replicas)

    def lines(self) -> tuple[str, ...]:
        """Give the sentences, in the order the reasons came up."""
        return tuple(f"{form}{_counts(said[1])}: {said[0]}" for (form, _), said in self._found.items())


def _counts(counts: list[int]) -> str:
    if not counts:
        return ""
    span = str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"
    return f", {span} replicas"
