"""What a caller says of a step's inputs: which are secret, and which plain ones are known when the step is planned."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinychain.autodiff.errors import AutodiffError, describe, quote
from tinychain.autodiff.graph import Record
from tinychain.autodiff.training import CompiledTrainingStep
from tinychain.autodiff.training.execution import trained_names
from tinychain.autodiff.training.interface import input_types, optimizer_input_types
from tinychain.autodiff.types import TensorType


@dataclass(frozen=True)
class Inputs(Record):
    """The tensors that a step takes, by name: their types, and what each is.

    `trained` are the parameters and the states, each with the name of its parameter; `known` the plain values.
    """

    data: Mapping[str, TensorType]
    trained: Mapping[str, TensorType]
    optimizer: Mapping[str, TensorType]
    owners: Mapping[str, str]
    secret: frozenset[str]
    known: Mapping[str, NDArray[Any]]

    def label(self, name: str) -> str:
        """What a message calls an input."""
        if name in self.optimizer:
            return f"optimizer input {quote(name)}"
        if name in self.owners:
            return f"{'parameter' if self.owners[name] == name else 'state'} {quote(name)}"
        return f"input {quote(name)}"


def declare(step: CompiledTrainingStep, secret: Collection[str], known: Mapping[str, Any]) -> Inputs:
    """The checked declaration. What a program does not read may be declared too, and is left out.

    Raises invalid_encryption_plan for names that cannot be secret or known, a name that is both, and a known value that
    is neither a finite number nor an array of such with the declared shape.
    """
    types = input_types(step)
    parameters = {record.name: types.pop(record.name) for record in step.parameters}
    trained, owners = {}, {}
    for record in step.parameters:
        for name in trained_names(record):
            trained[name], owners[name] = parameters[record.name], record.name
    optimizer = optimizer_input_types(step)
    twice = [name for name in step.provenance.optimizer_input_names if name in step.input_value_ids]
    if twice:
        raise refused(f"{quote(twice[0])} is the name of an input and of an optimizer input; rename one of them")
    plain = [name for name in step.input_value_ids if name not in parameters]
    _check_names("secret", secret, list(step.input_value_ids), "a collection of names")
    _check_names("known", known, [*plain, *step.provenance.optimizer_input_names], "a mapping of names to values")
    both = [name for name in known if name in secret]
    if both:
        raise refused(f"{quote(both[0])} is declared secret and known; a plan holds known values as they are")
    arrays = {
        name: _filled(name, known[name], type_) for name, type_ in {**types, **optimizer}.items() if name in known
    }
    of_secret = [name for name, owner in owners.items() if owner in secret]
    return Inputs(types, trained, optimizer, owners, frozenset([*secret, *of_secret]), arrays)


def split_ranges(
    step: CompiledTrainingStep, secret: object, ranges: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is always the same, by name, and the ranges of all else: a plain input that is given no tuple is known.

    Raises invalid_encryption_plan for names that are none of the step's.
    """
    trained = [name for record in step.parameters for name in trained_names(record)]
    inputs = [*step.input_value_ids, *step.provenance.optimizer_input_names]
    unknown = [name for name in ranges if not isinstance(name, str) or name not in [*inputs, *trained]]
    if unknown:
        raise refused(
            f"ranges: unknown are {quote(unknown)}; expected names among {list(dict.fromkeys(inputs + trained))}"
        )
    hidden = [*trained, *(secret if isinstance(secret, Collection) else ())]
    known = {name: value for name, value in ranges.items() if name not in hidden and not isinstance(value, tuple)}
    return known, {name: value for name, value in ranges.items() if name not in known}


def refused(message: str) -> AutodiffError:
    """The refusal of a declaration."""
    return AutodiffError("invalid_encryption_plan", message)


def _check_names(label: str, given: object, valid: Collection[str], expected: str) -> None:
    form = Mapping if label == "known" else Collection
    if not isinstance(given, form) or isinstance(given, (str, bytes)):
        raise refused(f"{label}: expected {expected}, got {quote(given)}")
    unknown = [name for name in given if not isinstance(name, str) or name not in valid]
    if unknown:
        raise refused(f"{label}: {quote(unknown[0])} cannot be {label}; expected names among {list(valid)}")


def _filled(name: str, value: object, type_: TensorType) -> NDArray[Any]:
    label = f"known {quote(name)}: expected a finite number or an array of them for {type_}"
    try:
        array = np.asarray(value)
    except Exception as error:  # such as the ValueError for rows of different lengths
        raise refused(f"{label}; NumPy makes no array of it: {describe(error)}") from error
    if array.dtype.kind not in "iuf" or array.shape not in ((), type_.shape):
        hint = "; a range is a tuple, (low, high)"
        raise refused(f"{label}, got one of dtype {array.dtype} and shape {list(array.shape)}{hint}")
    if not np.isfinite(array).all():
        raise refused(f"{label}, but not all are finite")
    sizes = [dim for dim in type_.shape if isinstance(dim, int)]  # all of them, as lowering has made sure
    return np.full(sizes, array, np.float64)
