"""The parts of a compiled step as JSON data and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any, Final

from tinychain.autodiff.errors import quote
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph
from tinychain.autodiff.serialization.decode import Decoder, check_keys, decode_each
from tinychain.autodiff.serialization.encode import Encoder, encode_fields, encode_id_table, encode_ids
from tinychain.autodiff.serialization.faults import Fault, found, within
from tinychain.autodiff.serialization.parts import (
    Artifact,
    GradientInputsPart,
    ParameterPart,
    StepParts,
    TwinsPart,
    Unit,
    UpdatePart,
)
from tinychain.autodiff.serialization.values import encode_text
from tinychain.autodiff.training import TrainingStepProvenance

_UNIT: Final = frozenset({"source", "lowered", "outputs"})


# --------------------------------------------------------------------------------------------------------- encoding


def encode_parts(parts: StepParts) -> dict[str, Any]:
    """JSON data of the step. A lowered artifact that is the very same object as its source is null."""
    encoder = Encoder()
    extra = parts.gradient_inputs
    data = {
        "derivative": _encode_unit(parts.derivative, ".derivative", encoder.program),
        "forward": _encode_unit(parts.forward, ".forward", encoder.graph),
        "forward_capture_value_ids": encode_ids(parts.forward_capture_value_ids, ".forward_capture_value_ids"),
        "gradient_inputs": None if extra is None else _encode_gradient_inputs(extra, encoder),
        "input_value_ids": encode_id_table(parts.input_value_ids, ".input_value_ids"),
        "loss_value_id": _encode_id(parts.loss_value_id, ".loss_value_id"),
        "parameters": [_encode_parameter(part, f".parameters[{i}]") for i, part in enumerate(parts.parameters)],
        "provenance": encode_fields(parts.provenance, ".provenance", TrainingStepProvenance),
        "seed_value_ids": encode_ids(parts.seed_value_ids, ".seed_value_ids"),
        "twins": None if parts.twins is None else _encode_twins(parts.twins, encoder),
        "updates": [_encode_update(part, f".updates[{i}]", encoder) for i, part in enumerate(parts.updates)],
    }
    _check_source(data["forward"], parts.provenance)
    return data


def _encode_unit(unit: Unit[Artifact], path: str, encode: Callable[[Artifact], Any]) -> dict[str, Any]:
    with within(f"{path}.source"):
        source = encode(unit.source)
    with within(f"{path}.lowered"):
        lowered = None if unit.lowered is unit.source else encode(unit.lowered)
    return {"lowered": lowered, "outputs": encode_ids(unit.outputs, f"{path}.outputs"), "source": source}


def _encode_update(part: UpdatePart, path: str, encoder: Encoder) -> dict[str, Any]:
    return {
        **_encode_unit(part.unit, path, encoder.graph),
        "input_value_ids": encode_id_table(part.input_value_ids, f"{path}.input_value_ids"),
        "updated_parameter_value_id": _encode_id(part.updated_parameter_value_id, f"{path}.updated_parameter_value_id"),
        "updated_state_value_ids": encode_id_table(part.updated_state_value_ids, f"{path}.updated_state_value_ids"),
    }


def _encode_gradient_inputs(part: GradientInputsPart, encoder: Encoder) -> dict[str, Any]:
    path = ".gradient_inputs"
    return {
        **_encode_unit(part.unit, path, encoder.graph),
        "input_value_ids": encode_id_table(part.input_value_ids, f"{path}.input_value_ids"),
        "output_value_ids": encode_id_table(part.output_value_ids, f"{path}.output_value_ids"),
    }


def _encode_twins(part: TwinsPart, encoder: Encoder) -> dict[str, Any]:
    updates = []
    with within(".twins"):
        for index, graph in enumerate(part.updates):
            with within(f".updates[{index}]"):
                updates.append(None if graph is None else encoder.graph(graph))
        with within(".derivative"):
            derivative = encoder.program(part.derivative)
        return {
            "derivative": derivative,
            "parameters": encode_ids(part.parameters, ".parameters"),
            "updates": updates,
        }


def _encode_parameter(part: ParameterPart, path: str) -> dict[str, Any]:
    return {
        "gradient_value_id": _encode_id(part.gradient_value_id, f"{path}.gradient_value_id"),
        "name": _encode_id(part.name, f"{path}.name"),
        "update": part.update,
        "value_id": _encode_id(part.value_id, f"{path}.value_id"),
    }


def _encode_id(value_id: str, path: str) -> str:
    with within(path):
        return encode_text(value_id)


# --------------------------------------------------------------------------------------------------------- decoding


def decode_parts(data: Any, decoder: Decoder) -> StepParts:
    """The parts that `encode_parts` was given; mappings by name are in the order of the names in the provenance."""
    check_keys(data, {field.name for field in fields(StepParts)})
    provenance = decoder.fields(data["provenance"], ".provenance", TrainingStepProvenance)
    with within(".forward"):
        check_keys(data["forward"], _UNIT)
        forward = _decode_unit(data["forward"], decoder, decoder.graph)
    with within(".derivative"):
        check_keys(data["derivative"], _UNIT)
        derivative: Unit[DerivativeProgram] = _decode_unit(data["derivative"], decoder, decoder.program)
    _check_source(data["forward"], provenance)
    with within(".loss_value_id"):
        loss_value_id = decoder.id(data["loss_value_id"])
    extra, twins = data["gradient_inputs"], data["twins"]
    return StepParts(
        forward=forward,
        derivative=derivative,
        input_value_ids=_named(data, "input_value_ids", decoder, provenance.input_names),
        loss_value_id=loss_value_id,
        forward_capture_value_ids=tuple(decoder.ids(data["forward_capture_value_ids"], ".forward_capture_value_ids")),
        seed_value_ids=tuple(decoder.ids(data["seed_value_ids"], ".seed_value_ids")),
        parameters=tuple(decode_each(data["parameters"], ".parameters", lambda part: _decode_parameter(part, decoder))),
        updates=tuple(decode_each(data["updates"], ".updates", lambda part: _decode_update(part, decoder, provenance))),
        provenance=provenance,
        gradient_inputs=None if extra is None else _decode_gradient_inputs(extra, decoder, provenance),
        twins=None if twins is None else _decode_twins(twins, decoder),
    )


def _decode_unit(data: Any, decoder: Decoder, decode: Callable[[Any], Artifact]) -> Unit[Artifact]:
    with within(".source"):
        source = decode(data["source"])
    with within(".lowered"):
        lowered = source if data["lowered"] is None else decode(data["lowered"])
    return Unit(source, lowered, tuple(decoder.ids(data["outputs"], ".outputs")))


def _decode_update(data: Any, decoder: Decoder, provenance: TrainingStepProvenance) -> UpdatePart:
    names = {"input_value_ids", "updated_parameter_value_id", "updated_state_value_ids"}
    check_keys(data, _UNIT | names)
    order = ("parameter", "gradient", *provenance.optimizer_input_names)
    unit: Unit[TensorGraph] = _decode_unit(data, decoder, decoder.graph)
    with within(".updated_parameter_value_id"):
        updated = decoder.id(data["updated_parameter_value_id"])
    return UpdatePart(
        unit=unit,
        input_value_ids=_named(data, "input_value_ids", decoder, order),
        updated_parameter_value_id=updated,
        updated_state_value_ids=_named(data, "updated_state_value_ids", decoder, ()),
    )


def _decode_gradient_inputs(data: Any, decoder: Decoder, provenance: TrainingStepProvenance) -> GradientInputsPart:
    with within(".gradient_inputs"):
        check_keys(data, _UNIT | {"input_value_ids", "output_value_ids"})
        return GradientInputsPart(
            unit=_decode_unit(data, decoder, decoder.graph),
            input_value_ids=_named(data, "input_value_ids", decoder, provenance.parameter_names),
            output_value_ids=_named(data, "output_value_ids", decoder, provenance.optimizer_input_names),
        )


def _decode_twins(data: Any, decoder: Decoder) -> TwinsPart:
    with within(".twins"):
        check_keys(data, {field.name for field in fields(TwinsPart)})
        with within(".derivative"):
            derivative = decoder.program(data["derivative"])
        return TwinsPart(
            derivative=derivative,
            parameters=tuple(decoder.ids(data["parameters"], ".parameters")),
            updates=tuple(
                decode_each(data["updates"], ".updates", lambda graph: None if graph is None else decoder.graph(graph))
            ),
        )


def _named(data: Any, name: str, decoder: Decoder, order: Iterable[str]) -> dict[str, str]:
    """A field that maps names to ids, in the order of the names."""
    return decoder.table(data[name], f".{name}", decoder.id, order=order)


def _decode_parameter(data: Any, decoder: Decoder) -> ParameterPart:
    check_keys(data, {field.name for field in fields(ParameterPart)})
    if type(data["update"]) is not int:
        raise Fault(".update", "a position in updates", found(data["update"]))
    ids = {}
    for name in ("name", "value_id", "gradient_value_id"):
        with within(f".{name}"):
            ids[name] = decoder.id(data[name])
    return ParameterPart(**ids, update=data["update"])


def _check_source(forward: Any, provenance: TrainingStepProvenance) -> None:
    """The provenance names the source graph by its content hash, which stands beside the graph."""
    digest = forward["source"]["content_hash"]
    if provenance.source_graph_id != digest:
        raise Fault(
            ".provenance.source_graph_id",
            f"{digest}, the content hash of forward.source",
            quote(provenance.source_graph_id),
        )
