"""One rule for whether an array is of a declared type, with the categories that a caller can tell apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinychain.autodiff.arrays import DTYPES, check_array
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.types import FLOATING_DTYPES, ITEM_BYTES


def test_every_floating_dtype_has_one_of_its_size() -> None:
    assert {name: dtype.itemsize for name, dtype in DTYPES.items()} == {
        name: ITEM_BYTES[name] for name in FLOATING_DTYPES
    }


def test_symbols_are_bound_to_what_fits() -> None:
    symbols: dict[str, int] = {"N": 2}
    check_array("x", np.ones((2, 3)), "f64", ("N", "M"), symbols)
    assert symbols == {"N": 2, "M": 3}


def test_what_is_not_declared_is_not_judged() -> None:
    check_array("x", np.ones(3, int), None, (3,), {})
    check_array("x", np.ones(3), "f64", None, {})


@pytest.mark.parametrize(
    ("array", "category", "message"),
    [
        (np.ones((2, 3), np.float32), "dtype_mismatch", "x has dtype float32; expected f64, so cast it"),
        (np.ones((2, 3), ">f8"), "dtype_mismatch", "x has dtype >f8; expected f64, so cast it"),
        (np.ones((2, 4)), "shape_mismatch", "x has shape [2, 4]; expected ['N', 3]"),
        (np.ones(3), "shape_mismatch", "x has shape [3]; expected ['N', 3]"),
        (np.ones((4, 3)), "symbolic_shape_mismatch", "x has shape [4, 3]; expected ['N', 3]: symbol 'N' is bound to 2"),
    ],
)
def test_what_does_not_fit_is_told(array: Any, category: str, message: str) -> None:
    with pytest.raises(AutodiffError) as caught:
        check_array("x", array, "f64", ("N", 3), {"N": 2}, remedy=", so cast it")
    assert caught.value.category == category
    assert caught.value.message.startswith(message)
