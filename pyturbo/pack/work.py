"""The large files of a packed checkpoint that is being written, and those of them that are finished."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pyturbo.checkpoint.manifest import RESIDENT, PackedLayer, Resident
from pyturbo.pack.findings import check_layer, check_resident
from pyturbo.pack.journal import Journal
from pyturbo.pack.plan import Plan
from pyturbo.pack.requantize import Squares
from pyturbo.pack.target import EXPERTS
from pyturbo.pack.write import Advance, resident_header, write_layer, write_resident


class Work:
    """Writes the resident tensors, then layer by layer, and notes each file in the journal."""

    def __init__(self, folder: Path, plan: Plan, log: Journal, advance: Advance) -> None:
        """Check the files that the journal calls finished; those that are damaged are written again."""
        self._folder, self._plan, self._log, self._advance = folder, plan, log, advance
        (folder / EXPERTS).mkdir(exist_ok=True)
        self._resident: Resident | None = None
        self._layers: dict[str, PackedLayer] = {}
        self._squares: list[dict[str, Squares]] = []
        self._keep_finished()
        #: Bytes of the files that are kept.
        self.kept = sum(layer.nbytes for layer in self._layers.values())
        self.kept += self._resident.nbytes if self._resident is not None else 0

    def _keep_finished(self) -> None:
        entry = self._log.entries.get(RESIDENT)
        if entry is not None:
            resident = Resident(RESIDENT, entry["bytes"], entry["header"], entry["checksums"])
            if not check_resident(self._folder, resident, self._advance):
                self._resident = resident
        for job in self._plan.layers:
            entry = self._log.entries.get(job.layer.file)
            if entry is not None:
                layer = replace(job.layer, checksums=tuple(entry["checksums"]))
                if not check_layer(self._folder, layer, self._advance):
                    self._layers[layer.path] = layer
                    self._squares.append({name: Squares(*sums) for name, sums in entry["squares"].items()})

    def write(self) -> tuple[Resident, tuple[PackedLayer, ...]]:
        """Write what is not finished."""
        if self._resident is None:
            self._resident = write_resident(self._folder / RESIDENT, self._plan, self._advance)
            facts = {"bytes": self._resident.nbytes, "header": self._resident.header}
            self._log.add(RESIDENT, **facts, checksums=dict(self._resident.checksums))
        for job in self._plan.layers:
            if job.layer.path in self._layers:
                continue
            sums = write_layer(self._folder / job.layer.file, job, self._advance)
            squares = job.squares()
            self._squares.append(squares)
            pairs = {name: (one.errors, one.values) for name, one in squares.items()}
            self._log.add(job.layer.file, checksums=sums, squares=pairs)
            self._layers[job.layer.path] = replace(job.layer, checksums=tuple(sums))
        return self._resident, tuple(self._layers[job.layer.path] for job in self._plan.layers)

    def errors(self) -> dict[str, float]:
        """Return the relative errors of requantised experts by projection, and of all; none if exact."""
        names = {name: None for squares in self._squares for name in squares}
        sums = {name: Squares.sum(squares[name] for squares in self._squares) for name in names}
        if not sums:
            return {}
        return {name: one.relative_error for name, one in sums.items()} | {
            "all": Squares.sum(sums.values()).relative_error
        }


def large_bytes(plan: Plan) -> int:
    """Return the size of all large files."""
    return resident_header(plan)[2] + sum(job.layer.nbytes for job in plan.layers)
