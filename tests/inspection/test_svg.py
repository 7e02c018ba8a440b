"""The SVG and the page around it: well-formed, self-contained, and the same everywhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dags import chain, dag, op
from inspected import main_job, three_layer_step
from steps import compiled, spec
from strategies import graphs, hostile_ids, programs, traced_graphs
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import MeanExpansionRegion
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph
from tinychain.autodiff.inspection import to_dot, to_html, to_svg
from tinychain.autodiff.operators import ConstantOperator
from tinychain.autodiff.training import Adam

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "inspection.svg"

SVG = "{http://www.w3.org/2000/svg}"
TAGS = {f"{SVG}{tag}" for tag in ("svg", "g", "title", "style", "rect", "polygon", "path", "text")}


def read(svg: str) -> ElementTree.Element:
    """The parsed picture, which has no element beyond those that draw."""
    root = ElementTree.fromstring(svg)
    assert {element.tag for element in root.iter()} <= TAGS
    return root


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def drawn_kinds(root: ElementTree.Element) -> set[str]:
    return {name for element in root.iter() for name in element.get("class", "").split()}


def test_the_main_job_says_what_it_is() -> None:
    root = read(to_svg(main_job()))
    found = texts(root)
    frames = {"expand_mean_graph: mean n3", "partial: broadcast dn1, div dn2"}
    assert {"forward", "derivative", "update of w", *frames} <= set(found)
    assert {"tc-input", "tc-parameter", "tc-capture", "tc-seed", "tc-operation", "tc-frame"} <= drawn_kinds(root)
    titles = [element.text for element in root.iter(f"{SVG}title")]
    assert titles[0] == "CompiledTrainingStep: forward, derivative, update of w"
    assert "v3 = matmul(v0, v2) {} : f32[455, 1] @n0" in titles


def test_the_legend_tells_the_kinds_that_occur_and_no_others() -> None:
    found = texts(read(to_svg(dag(op("z", "x"), outputs=["z"]))))
    assert [text for text in found if text in ("input", "operation", "output")] == ["input", "operation", "output"]
    assert not {"seed", "parameter or state", "captured forward value"} & set(found)


def test_a_collapsed_region_is_one_box() -> None:
    root = read(to_svg(main_job(), collapse=True))
    assert "expanded region, as one box" in texts(root)
    assert "tc-region" in drawn_kinds(root)
    assert "tc-frame" not in drawn_kinds(root)


def test_outputs_have_the_names_of_what_they_are() -> None:
    found = texts(read(to_svg(main_job())))
    assert {"= loss", "= captured", "= gradient of w", "= new parameter"} <= set(found)
    assert "= z" not in texts(read(to_svg(dag(op("z", "x"), outputs=["z"]))))


def test_an_output_that_is_two_things_names_both() -> None:
    step = compiled(loss=lambda w: (w + w).sum(), inputs={"w": spec(1)}, optimizer=lambda **given: given["gradient"])
    update = texts(read(to_svg(step)))
    assert update[update.index("update of w") :][:5] == ["update of w", "gradient", "f64[1]", "v1", "= new parameter"]


def test_updates_that_differ_in_shapes_alone_are_drawn_once() -> None:
    found = texts(read(to_svg(three_layer_step())))
    title = found.index("update of w1")
    assert found[title + 1 : title + 5] == [
        "and, alike but for shapes:",
        "update of b1, b2 : f64[1, 6]",
        "update of w2 : f64[6, 6]",
        "update of w3 : f64[6, 1]",
    ]
    assert found.count("learning_rate") == 1


def test_many_alike_updates_are_counted() -> None:
    inputs = {f"w{size}": spec(size) for size in range(1, 9)}
    step = compiled(
        loss=lambda **given: sum([(w * w).sum() for w in given.values()]), inputs=inputs, parameters=[*inputs]
    )
    found = texts(read(to_svg(step)))
    title = found.index("update of w1")
    assert found[title + 2 : title + 7] == [*[f"update of w{i} : f64[{i}]" for i in (2, 3, 4, 5)], "3 more"]


def test_params_are_spelled_as_in_the_listing() -> None:
    graph = dag(op("z", "x", keepdims=False, factor=1 - 0.9, note=None), outputs=["z"])
    (found,) = [text for text in texts(read(to_svg(graph))) if "keepdims" in text]
    assert found == "keepdims: false, factor: 0.099999999999…"
    assert "{keepdims: false, factor: 0.09999999999999998, note: null}" in to_svg(graph)


def test_a_long_constant_is_cut() -> None:
    values = [float(i) for i in range(1000)]
    node = replace(op("z", values=values), operator=ConstantOperator())
    svg = to_svg(dag(node, outputs=["z"]))
    assert "values: [0.0, 1.0, 2.0, 3.0, … 1,000 in all]" in svg
    assert len(svg) < 6000


def test_a_drawing_is_about_as_wide_as_high() -> None:
    adam = {"optimizer": Adam(), "optimizer_inputs": dict.fromkeys(Adam().required_optimizer_inputs, spec())}
    for step in (main_job(), three_layer_step(), three_layer_step(**adam)):
        root = read(to_svg(step))
        width, height = int(root.get("width", "")), int(root.get("height", ""))
        assert height < 1.5 * width
        assert width < 2 * height


def test_a_value_that_everything_reads_costs_one_line() -> None:
    """In a chain of n operations that all read one more value, text grows as n does."""

    def text(length: int) -> int:
        nodes = [op(f"c{i}", f"c{i - 1}" if i else "x", "y") for i in range(length)]
        return len(to_svg(dag(*nodes, outputs=[nodes[-1].output_value_id], inputs=("x", "y"))))

    assert text(800) < 2.2 * text(400)


def test_every_line_has_its_points_on_the_page() -> None:
    root = read(to_svg(three_layer_step()))
    width, height = int(root.get("width", "")), int(root.get("height", ""))
    assert root.get("viewBox") == f"0 0 {width} {height}"
    paths = [path.get("d", "") for path in root.iter(f"{SVG}path")]
    numbers = [int(number) for path in paths for number in re.findall(r"(?<![l\-0-9])[0-9]+", path)]
    assert max(numbers) <= max(width, height)
    assert all(path.startswith("M") for path in paths)


@given(traced_graphs())
def test_any_traced_graph_is_well_formed(graph: TensorGraph) -> None:
    read(to_svg(graph))


@given(st.lists(hostile_ids.filter(bool), min_size=2, max_size=2, unique=True), hostile_ids)
def test_any_id_is_escaped(ids: list[str], name: str) -> None:
    x, z = ids
    graph = dag(op(z, x, node_id=name, text=name), outputs=[z], inputs=[(x, {"dtype": name, "shape": [name]})])
    read(to_svg(graph, regions=[MeanExpansionRegion(name, (x,), (name,), z, "tier")]))
    to_html(graph).encode()


@given(graphs | programs())
def test_anything_is_drawn_or_refused_with_a_category(artifact: TensorGraph | DerivativeProgram) -> None:
    try:
        svg, page = to_svg(artifact), to_html(artifact)
    except AutodiffError:
        return
    read(svg)
    assert svg in page


INJECTION = "</text><script>alert(1)</script><img src=x onerror=alert(1)>&amp;'\"-->]]>"


class Page(HTMLParser):
    """The tags and attributes of a page, as a browser would see them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def test_ids_inject_nothing() -> None:
    graph = dag(op(INJECTION, "x", node_id=INJECTION, key=INJECTION), outputs=[INJECTION])
    page = Page(to_html(graph, regions=[MeanExpansionRegion(INJECTION, (INJECTION,), (INJECTION,), INJECTION, "")]))
    assert not {"script", "img", "a", "use", "image", "iframe", "link"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in ("href", "src", "style")]


def test_a_page_loads_nothing() -> None:
    page = to_html(main_job())
    assert "default-src 'none'" in page
    assert [text for text in re.findall(r"https?:[^\"\s]*", page) if text != "http://www.w3.org/2000/svg"] == []
    assert not re.search(r"url\(|@import|@font-face", page)


def test_a_page_has_the_figures_and_the_drawing() -> None:
    page = to_html(main_job())
    assert '<td class="number">59,667</td>' in page
    assert "<td>3 matmul, 2 fill, 2 mul, 1 reshape, 1 sub</td>" in page
    assert to_svg(main_job()) in page
    assert Page(page).tags.count("table") == 2


def test_a_page_binds_symbols() -> None:
    graph = dag(op("z", "x", typespec=spec("N")), outputs=["z"], inputs=[("x", spec("N"))])
    assert "unknown because the size of the symbol &#x27;N&#x27; is not known" in to_html(graph)
    assert "(56 B)" in to_html(graph, shape_bindings={"N": 7})


def test_light_and_dark_colour_the_same_things() -> None:
    light, _, dark = to_svg(main_job()).partition("@media (prefers-color-scheme: dark)")
    uncoloured = {".tc-name", ".tc-inner"}
    rules = re.compile(r"^(\.[\w-]+)\{", re.MULTILINE)
    assert set(rules.findall(light)) - uncoloured == set(rules.findall(dark)) - uncoloured


# -------------------------------------------------------------------------------------------------------------- limits


def tangle(width: int) -> TensorGraph:
    """A chain whose every value is read by its end too."""
    links = [f"c{i}" for i in range(width)]
    return dag(*chain(width).nodes, op("out", *links), outputs=["out"])


def test_a_graph_of_the_default_limit_is_drawn() -> None:
    read(to_svg(chain(1999)))
    with pytest.raises(ValueError, match="2,001 boxes"):
        to_svg(chain(2000))


def test_lines_that_nobody_could_follow_are_refused() -> None:
    read(to_svg(tangle(40)))
    with pytest.raises(ValueError, match="lines that span too many layers, too many for limit=2000"):
        to_svg(tangle(400))


@pytest.mark.parametrize("draw", [to_svg, to_html, to_dot])
@pytest.mark.parametrize("artifact", [None, "graph", 3])
def test_anything_else_is_refused(draw: Callable[[Any], str], artifact: Any) -> None:
    with pytest.raises(TypeError, match="artifact must be a TensorGraph"):
        draw(artifact)


# --------------------------------------------------------------------------------------------------------- sameness


def test_the_picture_in_the_docs_is_up_to_date(request: pytest.FixtureRequest) -> None:
    svg = to_svg(main_job())
    if request.config.getoption("--update-golden"):
        PICTURE.write_text(svg, encoding="utf-8", newline="\n")
    assert svg == PICTURE.read_text(encoding="utf-8")


_SCRIPT = """
import hashlib
from inspected import three_layer_step
from tinychain.autodiff.inspection import describe, to_dot, to_html
step = three_layer_step()
print(hashlib.sha256("".join([describe(step), to_dot(step), to_html(step)]).encode()).hexdigest())
"""


def test_everything_is_the_same_under_every_hash_seed() -> None:
    digests = set()
    for seed in ("0", "1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT / "tests")}
        command = [sys.executable, "-c", _SCRIPT]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        digests.add(done.stdout)
    assert len(digests) == 1
