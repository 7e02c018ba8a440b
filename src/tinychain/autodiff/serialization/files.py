"""Saving and loading: the public functions, and everything that touches the file system."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph, TensorOperator
from tinychain.autodiff.lowering import FusionHook, OperationHandlerRegistry
from tinychain.autodiff.lowering.records import BindInput
from tinychain.autodiff.lowering.walk import lower_analysed
from tinychain.autodiff.serialization.atomic import atomic_writer
from tinychain.autodiff.serialization.decode import Decoder
from tinychain.autodiff.serialization.document import read_document, write_document
from tinychain.autodiff.serialization.encode import Encoder
from tinychain.autodiff.serialization.faults import Fault, found, loading, saving, within
from tinychain.autodiff.serialization.parts import parts_of
from tinychain.autodiff.serialization.relower import lower_parts
from tinychain.autodiff.serialization.step_checks import analyse_parts
from tinychain.autodiff.serialization.step_data import decode_parts, encode_parts
from tinychain.autodiff.training import CompiledTrainingStep
from tinychain.autodiff.types import as_int

PathLike: TypeAlias = str | os.PathLike[str]
Decoded = TypeVar("Decoded")

#: The longest file that is read unless the caller asks for more: a graph of about a million nodes.
MAX_BYTES: Final = 1 << 28

_GRAPH: Final = "graph"
_PROGRAM: Final = "derivative_program"
_STEP: Final = "training_step"


# ----------------------------------------------------------------------------------------------------------- saving


def dumps(artifact: TensorGraph | DerivativeProgram | CompiledTrainingStep) -> bytes:
    """The canonical bytes of an artifact: equal ones give equal bytes, in every process.

    Of a compiled step, what the backend made is left out. Raises malformed_derivative_ir, with the JSON path, for an
    artifact that is not valid and for data that JSON cannot keep exactly; TypeError for another object. Linear.
    """
    with saving(), within("$.payload"):
        if isinstance(artifact, TensorGraph):
            return write_document(_GRAPH, Encoder().graph(artifact))
        if isinstance(artifact, DerivativeProgram):
            return write_document(_PROGRAM, Encoder().program(artifact))
        if isinstance(artifact, CompiledTrainingStep):
            parts = parts_of(artifact)
            data = encode_parts(parts)
            analyse_parts(parts)
            return write_document(_STEP, data)
    raise TypeError(
        f"artifact must be a TensorGraph, a DerivativeProgram or a CompiledTrainingStep, got {quote(artifact)}"
    )


def save(artifact: TensorGraph | DerivativeProgram | CompiledTrainingStep, path: PathLike) -> None:
    """Writes `dumps(artifact)` to a file, which is replaced as a whole or not at all.

    Raises as `dumps` does, and invalid_artifact_file where the file cannot be written.
    """
    _check_path(path)
    data = dumps(artifact)
    try:
        with atomic_writer(path) as file:
            file.write(data)
    except (OSError, ValueError) as error:
        raise _unusable(path, "a file that can be written", error) from error


# ---------------------------------------------------------------------------------------------------------- loading


def loads(
    data: bytes | str, *, operators: Iterable[type[TensorOperator]] = (), max_bytes: int = MAX_BYTES
) -> TensorGraph | DerivativeProgram:
    """The graph or program of `dumps`, to the last bit; equal typespecs share one object.

    `operators` are your own operator classes that the data may name; nothing else of yours is called or imported.
    Anything that `dumps` would not have written, and more than `max_bytes`, raises invalid_artifact_file with the JSON
    path of the fault; the spelling of the JSON is free. A bad argument raises TypeError or ValueError. Linear.
    """
    return _read_artifact(_given(data, max_bytes), "data", operators)


def load(
    path: PathLike, *, operators: Iterable[type[TensorOperator]] = (), max_bytes: int = MAX_BYTES
) -> TensorGraph | DerivativeProgram:
    """`loads` for a file. Also raises invalid_artifact_file for what is no file that can be read."""
    return _read_artifact(_file(path, max_bytes), quote(path), operators)


def loads_training_step(
    data: bytes | str,
    *,
    handlers: OperationHandlerRegistry,
    fusion: FusionHook | None = None,
    bind_input: BindInput | None = None,
    operators: Iterable[type[TensorOperator]] = (),
    max_bytes: int = MAX_BYTES,
) -> CompiledTrainingStep:
    """The compiled step of `dumps`, lowered again for the backend of `handlers`, `fusion` and `bind_input`.

    Raises as `loads` does, before a handler runs, and then what lowering raises.
    """
    lower = partial(lower_analysed, handlers=handlers, fusion=fusion, bind_input=bind_input)
    return _read_step(_given(data, max_bytes), "data", operators, lower)


def load_training_step(
    path: PathLike,
    *,
    handlers: OperationHandlerRegistry,
    fusion: FusionHook | None = None,
    bind_input: BindInput | None = None,
    operators: Iterable[type[TensorOperator]] = (),
    max_bytes: int = MAX_BYTES,
) -> CompiledTrainingStep:
    """`loads_training_step` for a file. Also raises invalid_artifact_file for what is no file that can be read."""
    lower = partial(lower_analysed, handlers=handlers, fusion=fusion, bind_input=bind_input)
    return _read_step(_file(path, max_bytes), quote(path), operators, lower)


def _read_artifact(
    read: Callable[[], bytes | str], source: str, operators: Iterable[type[TensorOperator]]
) -> TensorGraph | DerivativeProgram:
    decoder = Decoder(operators)
    with loading(source):
        kind, payload = _read(read, (_GRAPH, _PROGRAM), "read a training step with load_training_step")
        with within("$.payload"):
            return decoder.graph(payload) if kind == _GRAPH else decoder.program(payload)


def _read_step(
    read: Callable[[], bytes | str], source: str, operators: Iterable[type[TensorOperator]], lower: Any
) -> CompiledTrainingStep:
    decoder = Decoder(operators)
    with loading(source):
        _, payload = _read(read, (_STEP,), "read a graph or a derivative program with load")
        with within("$.payload"):
            parts = decode_parts(payload, decoder)
            analysed = analyse_parts(parts)
    return lower_parts(parts, analysed, lower)


def _read(read: Callable[[], bytes | str], kinds: Collection[str], remedy: str) -> tuple[str, Any]:
    kind, payload = read_document(read())
    if kind not in kinds:
        raise Fault("$.kind", " or ".join(map(quote, kinds)), found(kind), remedy)
    return kind, payload


# ------------------------------------------------------------------------------------------------- sizes and files


def _given(data: object, max_bytes: object) -> Callable[[], bytes | str]:
    """Reads data that the caller has at hand."""
    limit = _limit(max_bytes)
    if not isinstance(data, (bytes, str)):
        raise TypeError(f"data must be bytes or a str, got {quote(data)}")
    given = data

    def read() -> bytes | str:
        _check_size(len(given), limit)
        return given

    return read


def _file(path: PathLike, max_bytes: object) -> Callable[[], bytes]:
    """Reads a file. Its size is looked at first, and no more than that is read."""
    limit = _limit(max_bytes)
    _check_path(path)

    def read() -> bytes:
        try:
            status = os.stat(path)
            if not stat.S_ISREG(status.st_mode):
                raise Fault("$", "a regular file", "a directory or a device", "name the file itself")
            _check_size(status.st_size, limit)
            with open(path, "rb") as file:
                data = file.read(limit + 1)
        except (OSError, ValueError) as error:
            raise _unusable(path, "a file that can be read", error) from error
        _check_size(len(data), limit)
        return data

    return read


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise Fault("$", f"at most {limit} bytes", str(size), "raise max_bytes if you trust where it comes from")


def _limit(max_bytes: object) -> int:
    limit = as_int(max_bytes)
    if limit is None or limit < 0:
        raise ValueError(f"max_bytes must be a non-negative int, got {quote(max_bytes)}")
    return limit


def _check_path(path: object) -> None:
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path must be a str or an os.PathLike, got {quote(path)}")


def _unusable(path: PathLike, expected: str, error: OSError | ValueError) -> AutodiffError:
    why = error.strerror if isinstance(error, OSError) else error
    return AutodiffError(
        "invalid_artifact_file",
        f"{quote(path)}: expected {expected}, got the error {why}; check the path, its rights and space",
    )
