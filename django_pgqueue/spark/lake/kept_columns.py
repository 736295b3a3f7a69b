"""The columns of the history that a lake has, and those that it has as masks: personal data may stay out of it.

The first export decides.  The settings of the table record it, so that later runs add the same
columns, and each step of the pipeline knows what it can do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from django_pgqueue.spark import mask, schema as schemas
from django_pgqueue.spark.errors import InvalidOption
from django_pgqueue.spark.lake.errors import LakeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import StructType

    from django_pgqueue.spark.lake.lake import Version
    from django_pgqueue.spark.options import PipelineOptions

ALL = tuple(schemas.ATTEMPTS.fieldNames())
SPARE = ("unique_key", "error_message", "traceback", "result", "content", "headers")
"""Columns that a lake and its reports can do without."""
NEEDED = tuple(name for name in ALL if name not in SPARE)
MASKABLE = ("channel", "task", "worker", "error_class", *SPARE)
LIKE = {
    "steps": {"error": "error_message", "result": "result"},
    "approvals": {"decided_by": "content", "comment": "content", "details": "content"},
}
"""Columns of other tables that the lake has as it has this column of the attempts.  It has all others."""
COLUMNS, MASKED, KEY_ID = "pgqueue.columns", "pgqueue.masked", "pgqueue.key_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptColumns:
    names: tuple[str, ...] = ALL
    masked: tuple[str, ...] = ()
    key_id: str | None = field(default=None, compare=False)
    """Tells the key of the masks from others."""

    @classmethod
    def asked(cls, options: PipelineOptions) -> KeptColumns:
        """Returns what the options say; raises an error for what a lake cannot do without."""
        kept = tuple(name for name in ALL if not options.columns or name in options.columns)
        if lacking := [name for name in NEEDED if name not in kept]:
            message = (
                f"Option columns: a lake and its reports need {', '.join(lacking)} too. Only {', '.join(SPARE)} can be "
                f"left out: columns={','.join(name for name in ALL if name in NEEDED or name in options.columns)}"
            )
            raise InvalidOption(message)
        if wrong := [name for name in options.mask if name not in MASKABLE or name not in kept]:
            reason = "which a lake needs as it is" if wrong[0] in NEEDED else "which option columns leaves out"
            message = f"Option mask has {wrong[0]}, {reason}. Masks can have {', '.join(MASKABLE)}."
            raise InvalidOption(message)
        masked = tuple(name for name in ALL if name in options.mask)
        return cls(names=kept, masked=masked, key_id=mask.key_id(mask.key(options)) if masked else None)

    @classmethod
    def of(cls, version: Version) -> KeptColumns:
        found = version.settings
        names = tuple(found[COLUMNS].split(",")) if COLUMNS in found else ALL
        return cls(names=names, masked=tuple(filter(None, found.get(MASKED, "").split(","))), key_id=found.get(KEY_ID))

    @classmethod
    def decided(cls, version: Version, options: PipelineOptions) -> KeptColumns:
        """Returns what this lake has; the options may say the same, or nothing."""
        known = cls.of(version)
        if (options.columns or options.mask) and known != cls.asked(options):
            message = (
                f"The lake has {known}, and options columns and mask say {cls.asked(options)}. Leave the options out, "
                "or export into another folder: files that were written before would stay as they are."
            )
            raise LakeError(message)
        if known.masked and mask.key_id(mask.key(options)) != known.key_id:
            message = (
                f"{options.mask_key_variable} has another key than the one that the lake was masked with: equal values "
                "would get different masks. Set the former key, or export into another folder."
            )
            raise LakeError(message)
        return known

    def settings(self) -> dict[str, str]:
        """Returns what the table records.  A lake with all columns gets those of later releases, too."""
        every = {
            COLUMNS: "" if self.names == ALL else ",".join(self.names),
            MASKED: ",".join(self.masked),
            KEY_ID: self.key_id,
        }
        return {name: value for name, value in every.items() if value}  # Delta refuses empty ones

    def options(self, table: str = "attempts") -> dict[str, str]:
        """Returns the options of a read of these columns."""
        names = self.schema(table).fieldNames()
        masked = [name for name in names if _like(table, name) in self.masked]
        return {"table": table, "columns": ",".join(names), "mask": ",".join(masked)}

    def schema(self, table: str = "attempts") -> StructType:
        every = schemas.TABLES[table].fieldNames()
        return schemas.chosen(table, [name for name in every if _like(table, name) in {None, *self.names}])

    def require(self, names: Sequence[str], purpose: str) -> None:
        """Raises an error if one of the columns is not here, or is only a mask."""
        for name in names:
            if name not in self.names or name in self.masked:
                state = "has only masks of" if name in self.masked else "was exported without"
                message = f"{purpose} needs the column {name}, and this lake {state} it (options columns and mask)."
                raise LakeError(message)

    def __str__(self) -> str:
        absent = [name for name in ALL if name not in self.names]
        words = f"all columns but {', '.join(absent)}" if absent else "all columns"
        return f"{words}, with masks in {', '.join(self.masked)}" if self.masked else words


def _like(table: str, name: str) -> str | None:
    return name if table == "attempts" else LIKE[table].get(name)
