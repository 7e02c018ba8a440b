"""Asking one rule for one form of a node: what it emits, or why it declines; and whether it kept its promises.

A rule may be anybody's, so everything that it emits is judged again before it becomes part of a plan.
"""

from __future__ import annotations

from tinychain.autodiff.emitter import Emitter, mint
from tinychain.autodiff.errors import AutodiffError, describe, qualified_name, quote
from tinychain.autodiff.expansion.target import Form
from tinychain.autodiff.form import check_nodes
from tinychain.autodiff.graph import Decline, ExpansionRule, TensorNodeRecord, TensorOperator, copied
from tinychain.autodiff.types import Typespec, as_int, typespec

_RESULT = "result"


def source_of(form: Form) -> TensorNodeRecord:
    """A node of this form, on the values `operand_id(0)`, `operand_id(1)` and so on; its params are copies."""
    return TensorNodeRecord(
        node_id="the source",
        output_value_id=_RESULT,
        operator=form.operator,
        op_params=copied(form.op_params),
        input_value_ids=map(operand_id, range(len(form.operands))),
        output_typespec=typespec(form.result),
    )


def operand_id(position: int) -> str:
    return f"source{position}"


def level_of(form: Form) -> int:
    """The operator's level; expansion_contract_violation for one that is no int or that raises."""
    operator = form.operator
    try:
        given = operator.expansion_level(form.result, *form.operands, **form.op_params)
    except Exception as error:
        raise _violation(f"expansion_level of {operator.name} raised {describe(error)} for {form}") from error
    level = as_int(given)
    if level is None:
        raise _violation(f"expansion_level of {operator.name} returned {quote(given)} for {form}; expected an int")
    return level


def ask(rule: ExpansionRule, form: Form) -> list[TensorNodeRecord] | Decline:
    """What the rule makes of a node of this form, checked; a rule that needs the size of a symbol declines.

    Raises expansion_contract_violation, naming the rule, for one that raises, returns something else, changes the node
    that it is given, or does not emit typed nodes of known values that end in the node's own value and type.
    """
    source = source_of(form)
    emit = _emitter(_specs(form))
    nodes = emit.nodes
    try:
        answer = rule(emit, source)
    except Exception as error:
        if isinstance(error, AutodiffError) and error.category == "unresolved_symbolic_shape":
            return Decline(error.message)
        raise broken(rule, f"raised {describe(error)} for {form}") from error
    if source != source_of(form):
        raise broken(rule, f"changed the node that it was given, {form}")
    if isinstance(answer, Decline):
        return answer
    if answer is not None:
        raise broken(rule, f"returned {quote(answer)} for {form}; expected None or a Decline")
    if not nodes:
        raise broken(rule, f"emitted nothing for {form}; expected a region or a Decline")
    _judge(rule, form, nodes)
    return nodes


def rule_name(rule: ExpansionRule) -> str:
    """The name of a rule in messages and regions; that of an operator is named after it, wherever it comes from."""
    owner = getattr(rule, "__self__", None)
    if isinstance(owner, TensorOperator):
        return f"{owner.name}.{getattr(rule, '__name__', type(rule).__name__)}"
    return qualified_name(rule)


def broken(rule: ExpansionRule, what: str) -> AutodiffError:
    """The error for a rule that does not do what a rule must."""
    return _violation(f"the expansion rule {rule_name(rule)} {what}")


def _violation(message: str) -> AutodiffError:
    return AutodiffError("expansion_contract_violation", message)


def _specs(form: Form) -> dict[str, Typespec | None]:
    return {operand_id(i): typespec(type_) for i, type_ in enumerate(form.operands)}


def _emitter(specs: dict[str, Typespec | None]) -> Emitter:
    return Emitter(specs=specs, mint_value=mint("value", ()), mint_node=mint("node", ()))


def _judge(rule: ExpansionRule, form: Form, nodes: list[TensorNodeRecord]) -> None:
    """Types are derived again, as a rule can also append records that it has made without the emitter."""
    try:
        check_nodes(nodes, "the region")
    except (AutodiffError, TypeError) as error:
        raise broken(rule, f"emitted no nodes: {describe(error)}") from error
    specs = _specs(form)
    judge = _emitter(specs)
    for node in nodes:
        value = quote(node.output_value_id)
        if not specs.keys() >= set(node.input_value_ids):
            raise broken(rule, f"emitted {value} from a value that it neither got nor made")
        if node.output_value_id in specs:
            raise broken(rule, f"emitted {value} twice, or over an operand")
        try:
            judge.check(node)
            derived = judge.derive(node)
        except AutodiffError as error:
            raise broken(rule, f"emitted a wrong node: {error}") from error
        if derived is None or node.output_typespec != typespec(derived):
            raise broken(rule, f"emitted {value} as {quote(node.output_typespec)}; its operands give {derived}")
        specs[node.output_value_id] = node.output_typespec
    last = nodes[-1]
    if last.output_value_id != _RESULT:
        raise broken(rule, "did not end in the value of its node; emit the last one with into=node.output_value_id")
    if last.output_typespec != typespec(form.result):
        raise broken(rule, f"ended in {quote(last.output_typespec)}; expected {form.result}")
    source = _emitter(_specs(form))
    source.check(source_of(form))
    for symbol, size in judge.symbols.items():
        if source.symbols.get(symbol) != size:
            raise broken(rule, f"takes the symbol {quote(symbol)} for {size}, which {form} does not say")
