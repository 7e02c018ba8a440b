"""Appending nodes: ids are minted and every declared type is derived from the operands by the operator's own rule.

Tracing, differentiation and the expansion passes all emit through here; no emit call takes a typespec.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final

from tinychain.autodiff.errors import AutodiffError, describe, quote
from tinychain.autodiff.graph import TensorNodeRecord, TensorOperator
from tinychain.autodiff.types import Shape, TensorType, Typespec, parse_type, spec_field, typespec, unify_shapes

_COUNTS: Final = {0: "zero inputs", 1: "one input", 2: "two inputs"}


def mint(prefix: str, taken: Container[str]) -> Callable[[], str]:
    """A source of the ids prefix0, prefix1, ..., which skips the taken ones."""
    count = -1

    def next_id() -> str:
        nonlocal count
        count += 1
        while (new := f"{prefix}{count}") in taken:
            count += 1
        return new

    return next_id


class Emitter:
    """Appends to `nodes`. `specs` holds the typespecs of values that came from elsewhere; they are read when needed.

    `symbols` holds the bindings of the whole program; a failed emission binds nothing and appends nothing.
    """

    def __init__(
        self,
        *,
        specs: Mapping[str, Typespec | None],
        mint_value: Callable[[], str],
        mint_node: Callable[[], str],
    ) -> None:
        self.nodes: list[TensorNodeRecord] = []
        self.symbols: dict[str, int] = {}
        self.mint_value = mint_value
        self._mint_node = mint_node
        self._specs = specs
        self._types: dict[str, TensorType] = {}
        self._operators: dict[type[TensorOperator], TensorOperator] = {}
        self._checked_forms: set[tuple[object, ...]] = set()
        # Typespecs are shared by many values, so each is parsed and built once. Keyed by identity (a mapping has no
        # hash), which holds because the entry keeps its typespec alive.
        self._parsed: dict[int, tuple[Typespec, TensorType | None]] = {}
        self._built: dict[TensorType, Typespec] = {}
        self._derived: dict[tuple[object, ...], TensorType] = {}

    def __call__(
        self, operator: type[TensorOperator], *operands: str, into: str | None = None, **op_params: Any
    ) -> str:
        """Emits one node and returns its value id, which is minted unless `into` names it.

        The result is typed if every operand is. Raises AutodiffError as the operator's type rule does.
        """
        return self.emit(operator, operands, op_params, into)

    def emit(
        self,
        operator: type[TensorOperator],
        operands: Sequence[str],
        op_params: Mapping[str, Any],
        into: str | None = None,
    ) -> str:
        """The same with the operands and the params as containers."""
        instance = self._operators.get(operator)
        if instance is None:
            if not isinstance(operator, type) or not issubclass(operator, TensorOperator):
                raise TypeError(f"operator must be a subclass of TensorOperator, got {quote(operator)}")
            instance = self._operators[operator] = operator()
        type_ = self._derive(instance, operands, op_params)
        value_id = self.mint_value() if into is None else into
        spec = None
        if type_ is not None:
            self._types[value_id] = type_
            spec = self._built.get(type_) or self.spec(type_)
        self.nodes.append(
            TensorNodeRecord(
                node_id=self._mint_node(),
                output_value_id=value_id,
                operator=instance,
                op_params=op_params,
                input_value_ids=operands,
                output_typespec=spec,
            )
        )
        return value_id

    def repeat(
        self,
        node: TensorNodeRecord,
        operands: Sequence[str],
        into: str | None = None,
        declared: Typespec | None = None,
    ) -> str:
        """Emits what an emitter has made before, for other operands of the same types; no rule runs again.

        `declared` is the typespec that the result has already, where it has one.
        """
        value_id = self.mint_value() if into is None else into
        self.nodes.append(
            TensorNodeRecord(
                node_id=self._mint_node(),
                output_value_id=value_id,
                operator=node.operator,
                op_params=node.op_params,
                input_value_ids=operands,
                output_typespec=node.output_typespec if declared is None else declared,
            )
        )
        return value_id

    def type(self, value_id: str) -> TensorType | None:
        """The type of a value; None where dtype or shape is unknown. A malformed shape raises."""
        return self._types.get(value_id) or self._read_type(value_id)

    def spec(self, type_: TensorType) -> Typespec:
        """The one typespec object for all values of a type."""
        if type_ not in self._built:
            self._built[type_] = typespec(type_)
        return self._built[type_]

    def shape(self, value_id: str) -> Shape:
        """The shape of a value; an unknown one raises missing_shape_metadata."""
        type_ = self.type(value_id)
        if type_ is None:
            raise AutodiffError(
                "missing_shape_metadata", f"value {quote(value_id)} has no known dtype and shape; give it a typespec"
            )
        return type_.shape

    def derive(self, node: TensorNodeRecord) -> TensorType | None:
        """The type that the operator's rule gives a node, None where an operand has none; binds symbols as it does."""
        return self._derive(node.operator, node.input_value_ids, node.op_params)

    def check(self, node: TensorNodeRecord) -> None:
        """Refuses a node, perhaps built by hand, that its operator's rules contradict.

        Raises malformed_derivative_ir for a wrong operand count or a foreign param, whatever the type rule raises, and
        the operator's `shape_category` where the declared shape is not the derived one. Untyped operands pass.
        """
        operator, operands, op_params = node.operator, node.input_value_ids, node.op_params
        form = (type(operator), len(operands), *op_params)
        if form not in self._checked_forms:
            self._check_form(node)
            self._checked_forms.add(form)
        if type(operator).result_type is TensorOperator.result_type:
            return
        derived = self._derive(operator, operands, op_params)
        declared = self.type(node.output_value_id)
        if derived != declared and derived is not None and declared is not None:
            self._check_declared(node, declared, derived)

    def _check_form(self, node: TensorNodeRecord) -> None:
        operator, op_params = node.operator, node.op_params
        expected = operator.operand_count(op_params)
        if expected is not None and expected != len(node.input_value_ids):
            raise AutodiffError(
                "malformed_derivative_ir",
                f"{operator.route_name} VJP requires exactly {_COUNTS.get(expected, f'{expected} inputs')}; node"
                f" {quote(node.node_id)} has {len(node.input_value_ids)}",
            )
        for key in op_params:
            if key not in operator.params and type(operator).result_type is not TensorOperator.result_type:
                raise AutodiffError(
                    "malformed_derivative_ir",
                    f"node {quote(node.node_id)} ({operator.name}) has the op_params key {quote(key)}; expected"
                    f" {list(operator.params)}",
                )

    def _check_declared(self, node: TensorNodeRecord, declared: TensorType, derived: TensorType) -> None:
        label = f"node {quote(node.node_id)} ({node.operator.name}) declares {declared}; its operands give {derived}"
        if derived.dtype != declared.dtype:
            raise AutodiffError("dtype_mismatch", label)
        try:
            unify_shapes(declared.shape, derived.shape, self.symbols, category=node.operator.shape_category)
        except AutodiffError as error:
            raise AutodiffError(error.category, f"{label}: {error.message}") from None

    def _derive(
        self, operator: TensorOperator, operands: Sequence[str], op_params: Mapping[str, Any]
    ) -> TensorType | None:
        types = tuple(map(self._types.get, operands))
        if not all(types):  # a type is never empty
            types = tuple(map(self.type, operands))
            if not all(types):
                return None
        if op_params:
            return self._apply_rule(operator, operands, types, op_params)
        # Bindings are never undone, so a rule that has accepted some types once gives the same result for them again.
        key = (type(operator), *types)
        result = self._derived.get(key)
        if result is None:
            result = self._derived[key] = self._apply_rule(operator, operands, types, op_params)
        return result

    def _apply_rule(
        self,
        operator: TensorOperator,
        operands: Sequence[str],
        types: tuple[Any, ...],
        op_params: Mapping[str, Any],
    ) -> TensorType:
        symbols = self.symbols
        bound = len(symbols)
        try:
            result = operator.result_type(symbols, *types, **op_params)
            if not isinstance(result, TensorType):
                raise TypeError(f"a type rule must return a TensorType, got {quote(result)}")
            return result
        except Exception as error:
            while len(symbols) > bound:  # a rule only adds bindings, so the last ones are the failed rule's
                symbols.popitem()
            where = f"{operator.name}({', '.join(f'{quote(v)}: {t}' for v, t in zip(operands, types, strict=True))})"
            if isinstance(error, AutodiffError):
                raise AutodiffError(error.category, f"{where}: {error.message}") from None
            raise AutodiffError("malformed_derivative_ir", f"{where}: {describe(error)}") from error

    def _read_type(self, value_id: str) -> TensorType | None:
        spec = self._specs.get(value_id)
        if spec is None:
            return None
        entry = self._parsed.get(id(spec))
        if entry is None:
            known = spec_field(spec, "dtype") is not None and spec_field(spec, "shape") is not None
            type_ = parse_type(spec, label=f"value {quote(value_id)}") if known else None
            entry = self._parsed[id(spec)] = (spec, type_)
        if entry[1] is not None:
            self._types[value_id] = entry[1]
        return entry[1]
