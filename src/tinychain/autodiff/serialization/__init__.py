"""Artifacts as files and back: one documented, versioned JSON form, bit for bit, written whole or not at all.

Nothing that is read is ever executed or imported by its name, and what is not exactly as written is refused with the
JSON path of the fault.
"""

from tinychain.autodiff.serialization.files import (
    MAX_BYTES,
    dumps,
    load,
    load_training_step,
    loads,
    loads_training_step,
    save,
)

__all__ = ["MAX_BYTES", "dumps", "load", "load_training_step", "loads", "loads_training_step", "save"]
