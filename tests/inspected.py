"""The artifacts that the tests of inspection look at, and readers of the drawings that come out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from steps import compiled, spec
from tinychain.autodiff.expansion import expand_mean_derivative_program, expand_mean_graph
from tinychain.autodiff.tracing import Tensor
from tinychain.autodiff.training import CompiledTrainingStep

#: The passes of the main job.
EXPANSIONS: dict[str, Any] = {
    "forward_expansions": [expand_mean_graph],
    "derivative_expansions": [partial(expand_mean_derivative_program, reserved_id_prefix="gx")],
}


def main_job() -> CompiledTrainingStep:
    """The training step of the main job: a linear model of 31 features on 455 rows, its means expanded."""
    inputs = {"x": spec(455, 31, dtype="f32"), "y": spec(455, 1, dtype="f32"), "w": spec(31, 1, dtype="f32")}
    return compiled("f32", inputs=inputs, **EXPANSIONS)


def three_layers(x: Tensor, y: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, w3: Tensor) -> Tensor:
    hidden = x @ w1 + b1
    hidden = hidden * hidden @ w2 + b2
    residual = hidden * hidden @ w3 - y
    return (residual * residual).mean()


#: b1 and b2 are of one type, so they share an update.
LAYER_INPUTS = {
    "x": spec(8, 4),
    "y": spec(8, 1),
    "w1": spec(4, 6),
    "b1": spec(1, 6),
    "w2": spec(6, 6),
    "b2": spec(1, 6),
    "w3": spec(6, 1),
}


def three_layer_step(**changes: Any) -> CompiledTrainingStep:
    parameters = [name for name in LAYER_INPUTS if name not in ("x", "y")]
    return compiled(loss=three_layers, inputs=LAYER_INPUTS, parameters=parameters, **{**EXPANSIONS, **changes})


# --------------------------------------------------------------------------------------------------------------- DOT

_TOKEN = re.compile(r'\s*+(?:("(?:[^"\\]|\\.)*+")|([A-Za-z_]\w*|[0-9.]+)|(->|[{}\[\]=,]))', re.DOTALL | re.ASCII)


@dataclass
class Cluster:
    """A (sub)graph of a DOT text: its label, its own nodes with their attributes, its subgraphs and its edges."""

    label: str = ""
    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    clusters: list[Cluster] = field(default_factory=list)
    edges: list[tuple[str, str]] = field(default_factory=list)


def read_dot(text: str) -> Cluster:
    """Reads the part of the DOT language that we write, strictly: ValueError for anything else."""
    tokens, end = [], 0
    while text[end:].strip():
        match = _TOKEN.match(text, end)
        if match is None:
            raise ValueError(f"no DOT token: {text[end : end + 40]!r}")
        tokens.append(match[1] or match[2] or match[3])
        end = match.end()
    tokens.reverse()

    def take(*expected: str) -> str:
        token = tokens.pop()
        if expected and token not in expected:
            raise ValueError(f"expected {expected}, got {token!r}")
        return token

    def attributes() -> dict[str, str]:
        found = {}
        take("[")
        while tokens[-1] != "]":
            name = take()
            take("=")
            found[name] = shown(take())
            if tokens[-1] == ",":
                take()
        take("]")
        return found

    take("digraph")
    take("{")
    root = Cluster()
    open_clusters = [root]
    while open_clusters:
        token, here = take(), open_clusters[-1]
        if token == "}":
            open_clusters.pop()
        elif token == "subgraph":
            take()
            take("{")
            here.clusters.append(Cluster())
            open_clusters.append(here.clusters[-1])
        elif tokens[-1] == "=":
            take()
            value = shown(take())
            here.label = value if token == "label" else here.label
        elif tokens[-1] == "->":
            take()
            here.edges.append((token, take()))
        else:
            found = attributes()
            if token not in ("node", "edge"):
                here.nodes[token] = found
    if tokens:
        raise ValueError(f"text after the graph: {tokens[-1]!r}")
    return root


def shown(token: str) -> str:
    """What Graphviz shows for a token: of a string, the escapes and the entity are resolved."""
    if not token.startswith('"'):
        return token
    text = re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], token[1:-1])
    return text.replace("&amp;", "&")
