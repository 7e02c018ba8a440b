"""What a caller declares of a training step, checked before anything of theirs runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tinychain.autodiff.errors import AutodiffError, qualified_name, quote
from tinychain.autodiff.training.update import (
    UpdateRule,
    can_be_keyword,
    check_optimizer_inputs,
    check_update_rule,
    declared_type,
)
from tinychain.autodiff.types import TensorType, is_sequence

Loss: TypeAlias = Callable[..., Any]


@dataclass(frozen=True)
class Declaration:
    """A checked declaration, which nothing that the caller's code does later can change; dicts are in their order."""

    loss: Loss
    inputs: dict[str, TensorType]
    parameters: tuple[str, ...]
    optimizer: UpdateRule
    optimizer_inputs: dict[str, TensorType]
    seed_label: str


def declare(
    loss: Loss,
    inputs: Mapping[str, Mapping[str, Any]],
    parameters: Sequence[str],
    optimizer: UpdateRule,
    optimizer_inputs: Mapping[str, Mapping[str, Any]] | None,
    seed_label: str,
) -> Declaration:
    """The declaration, if every part of it holds; the loss is looked at and not called.

    Raises invalid_training_declaration, missing_dtype_metadata, missing_shape_metadata, invalid_update_signature,
    invalid_loss_signature, in this order of judgement.
    """
    if not isinstance(inputs, Mapping) or not inputs:
        raise _bad(f"inputs must be a non-empty mapping of names to typespecs, got {quote(inputs)}")
    for name in inputs:
        _check_name(name, "an input name")
    _check_parameters(parameters, inputs)
    if not isinstance(seed_label, str) or not seed_label:
        raise _bad(f"seed_label must be a non-empty str, got {quote(seed_label)}")
    types = {name: declared_type(name, spec) for name, spec in inputs.items()}
    declared = {name: declared_type(name, spec) for name, spec in check_optimizer_inputs(optimizer_inputs).items()}
    check_update_rule(optimizer, tuple(declared))
    _check_loss(loss, types)
    return Declaration(loss, types, tuple(parameters), optimizer, declared, seed_label)


def _check_parameters(parameters: object, inputs: Mapping[str, Any]) -> None:
    if not is_sequence(parameters) or not parameters:
        raise _bad(f"parameters must be a non-empty sequence of input names, got {quote(parameters)}")
    seen: set[str] = set()
    for name in parameters:
        _check_name(name, "a parameter name")
        if name in seen:
            raise _bad(f"parameter {quote(name)} is named twice")
        if name not in inputs:
            raise _bad(f"parameter {quote(name)} is not among the inputs {list(inputs)}")
        seen.add(name)


def _check_name(name: object, label: str) -> None:
    if not can_be_keyword(name):
        raise _bad(f"{label} must be a str that is an identifier and no keyword, got {quote(name)}")


def _check_loss(loss: object, inputs: Mapping[str, TensorType]) -> None:
    if not callable(loss):
        raise AutodiffError("invalid_loss_signature", f"the loss must be callable, got {quote(loss)}")
    try:
        inspect.signature(loss).bind(**dict.fromkeys(inputs))
    except (TypeError, ValueError) as error:
        raise AutodiffError(
            "invalid_loss_signature",
            f"{qualified_name(loss)} does not take exactly the inputs {list(inputs)} as keywords: {error}",
        ) from error


def _bad(message: str) -> AutodiffError:
    return AutodiffError("invalid_training_declaration", message)
