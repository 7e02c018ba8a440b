"""A target value that refuses everything that Python can do with an object, save passing it on."""

from __future__ import annotations

from typing import Any


def _refuse(*_args: Any, **_kwargs: Any) -> Any:
    raise AssertionError("a target value was looked into")


_DUNDERS = """abs add and bool bytes call complex contains delattr delitem dir divmod enter eq float floordiv format ge
    getattribute getitem getstate gt hash index int invert iter le len length_hint lshift lt matmul mod mul ne neg next
    or pos pow radd rand rdivmod reduce reduce_ex repr reversed rfloordiv rlshift rmatmul rmod rmul ror round rpow
    rrshift rshift rsub rtruediv rxor setattr setitem sizeof str sub truediv trunc xor"""

#: The class of such values; it has no other member.
Opaque: Any = type("Opaque", (), {f"__{name}__": _refuse for name in _DUNDERS.split()})
