"""Artifacts as stable, readable, line-based text and back, so that a rewrite can be read, diffed and kept as a golden.

    graph {
      input v0 : f32[4, N]
      v3 = matmul(v0, v2) : f32[4, 1] @n0
      v6 = mean(v5) {axes: [0, 1], keepdims: false} : f32[] @n3
      output v6
    }

A node is `value = operator(operands) {op_params} : typespec @node_id`; op_params and typespec are left out when there
are none. An operator of the package goes by its route name, any other by `ClassName<route_name>`. An id is a bare word
where it can be one and a quoted string otherwise, in which `\\u{1f600}` is a code point. Numbers are Python's own
(ints of very many digits in hex). A typespec of dtype and shape alone is `dtype[dims]`, any other is a mapping.

A program has no inputs, but one `metadata field = value` line per field, `gradient wrt = id` lines, `output id` (or
`output null`) for each output gradient, and `value id : typespec` lines for its `value_typespecs`. The line
`value * except id, id` adds the typespec that each node states, but for those values, and sorts the table by id. Blank
lines and lines that begin with `#` are skipped, and statements may stand in any order; those of one kind keep theirs.
"""

from tinychain.autodiff.text.parse import parse_text
from tinychain.autodiff.text.write import format_text

__all__ = ["format_text", "parse_text"]
