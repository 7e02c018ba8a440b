"""No secret key or value is in a server, a message, an error or a repr; and what searches them finds a planted one."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ckks_sessions import Both, refusal
from tinychain.autodiff.backends.ckks.keys import EvaluationKeys
from tinychain.autodiff.backends.ckks.library import from_bytes, seal
from tinychain.autodiff.backends.ckks.messages import Form, unpack_message
from tinychain.autodiff.backends.ckks.moduli import Moduli
from tinychain.autodiff.backends.ckks.trainer import EncryptedTrainer
from tinychain.autodiff.errors import AutodiffError

#: A number that nothing else has in its digits, and that is outside of every range.
SECRET = 71234.56789


# --------------------------------------------------------------------------------------------------------- the server


def reachable(root: object) -> Iterator[object]:
    """Every object that is held by this one, without what the whole process shares."""
    seen, queue = {id(root)}, [root]
    while queue:
        thing = queue.pop()
        yield thing
        for other in gc.get_referents(thing):
            if id(other) not in seen and not isinstance(other, (type, ModuleType, FunctionType)):
                seen.add(id(other))
                queue.append(other)


def that_decrypt(root: object) -> set[str]:
    kinds = (seal.SecretKey, seal.Decryptor, seal.KeyGenerator, seal.Encryptor)
    return {type(thing).__name__ for thing in reachable(root) if isinstance(thing, kinds)}


def test_a_server_holds_nothing_that_decrypts_and_a_client_does() -> None:
    both = Both().start()
    assert both.works()
    assert that_decrypt(both.server) == set()
    assert that_decrypt(both.client) == {"Encryptor", "Decryptor"}


def test_what_a_server_has_is_no_key_to_decrypt_with(tmp_path: Path) -> None:
    both = Both()
    context = Moduli(both.plan.parameters).context
    with pytest.raises(ValueError, match="secret key is not valid"):
        seal.Decryptor(context, seal.SecretKey())
    for message in (both.client.keys(), both.client.data(both.data), both.request()):
        for contents in unpack_message(message, is_reply=False).parts.values():
            path = tmp_path / "contents"
            path.write_bytes(contents)
            with pytest.raises((ValueError, IndexError, RuntimeError)):
                seal.SecretKey().load(context, str(path))


def test_another_key_decrypts_to_noise() -> None:
    both, other = Both(), Both()
    part = next(contents for part, contents in unpack_message(both.request(), is_reply=False).parts.items())
    right, wrong = [side.client._keys.decrypt(bytes(part)) for side in (both, other)]
    assert np.abs(right).max() < 2
    assert np.median(np.abs(wrong)) > 1e3


# -------------------------------------------------------------------------------------------------------- the messages


@pytest.fixture
def secret_keys(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The secret keys that are made from here on."""
    made: list[Any] = []
    generator_type = seal.KeyGenerator

    def make(context: Any) -> Any:
        generator = generator_type(context)
        made.append(generator.secret_key())
        return generator

    monkeypatch.setattr(seal, "KeyGenerator", make)
    return made


def words(polynomials: Any, ring_size: int) -> NDArray[np.uint64]:
    """The polynomials of a key or a ciphertext, one a row, modulo one prime each."""
    array = polynomials.dyn_array()
    return np.array([array.at(i) for i in range(array.size())], np.uint64).reshape(-1, ring_size)


def shared_words(secret: NDArray[np.uint64], ciphertexts: Iterable[Any]) -> int:
    """How many words of the secret key stand at their places in a polynomial."""
    found = 0
    for ciphertext in ciphertexts:
        for row in words(ciphertext, secret.shape[1]):
            found += int((secret == row).sum())
    return found


def test_no_message_has_the_secret_key(secret_keys: list[Any]) -> None:
    both = Both()
    moduli = Moduli(both.plan.parameters)
    (secret,) = [words(key.data(), moduli.parameters.ring_size) for key in secret_keys]
    messages = [unpack_message(m, is_reply=False) for m in (both.client.keys(), both.client.data(both.data))]
    parts = [(part, bytes(contents)) for message in messages for part, contents in message.parts.items()]
    (keys,) = [EvaluationKeys(moduli, contents) for part, contents in parts if part.form is Form.KEYS]
    inside = [key.data() for group in (keys.relinearization, keys.galois) for row in group.data() for key in row]
    inside += [from_bytes("ciphertext", moduli.context, c) for part, c in parts if part.form is Form.CIPHERTEXT]
    assert len(inside) > 20
    assert shared_words(secret, [*inside, keys.zero]) == 0
    assert shared_words(secret, [secret_keys[0].data()]) >= secret.size  # the search finds what is there
    for row in secret:
        assert not any(row[:4].tobytes() in contents for _, contents in parts)


# ----------------------------------------------------------------------------------------------------- errors and reprs


def text_of(error: BaseException) -> str:
    """Everything that is ever printed of an error, and of what it came from."""
    texts = []
    at: BaseException | None = error
    while at is not None:
        texts += [repr(at), *traceback.format_exception_only(at)]
        at = at.__cause__ or at.__context__
    return "".join(texts)


def broken(array: NDArray[Any]) -> Mapping[str, Any]:
    """What can be wrong with an array that has the secret in it."""
    secret = np.where(np.arange(array.size).reshape(array.shape) == 1, SECRET, array)
    return {
        "out of range": secret,
        "not finite": np.where(array == array.flat[0], np.inf, secret),
        "too many rows": np.concatenate([secret, secret]),
        "transposed": secret.T,
        "of another dtype": secret.astype(np.float32),
        "text": np.char.mod("%r", secret),
        "ragged": [[SECRET], [SECRET, SECRET]],
        "objects": [[object(), f"{SECRET}"]],
        "a text": f"{SECRET}",
        "nothing": None,
    }


@pytest.mark.parametrize("fault", broken(np.ones((2, 1))))
@pytest.mark.parametrize("of", ["data", "trained"])
def test_errors_about_secret_arrays_have_no_value(fault: str, of: str) -> None:
    both = Both()
    if of == "data":
        error = refusal(both.client.data, {**both.data, "x": broken(both.data["x"])[fault]})
    else:
        error = refusal(both.request, w=broken(both.trained["w"])[fault])
    assert error.category in ("invalid_training_data", "value_out_of_range")
    assert ("'x' of the data" if of == "data" else "'w' of what is trained") in error.message
    assert "7123" not in text_of(error)


@pytest.mark.parametrize("given", [np.full(3, SECRET), f"{SECRET}", [SECRET], None])
def test_errors_about_what_is_no_mapping_have_no_value(given: Any) -> None:
    both = Both()
    for function in (both.client.data, both.client.request):
        error = refusal(function, given)
        assert "expected a mapping" in error.message
        assert "7123" not in text_of(error)


def test_reprs_have_no_value() -> None:
    both = Both()
    trainer = EncryptedTrainer(
        both.plan,
        both.server.handle,
        parameters={name: np.full_like(both.trained[name], 1.234567) for name in ("w", "b")},
        optimizer_inputs={"learning_rate": 0.0},
    )
    report = trainer.fit(both.data, steps=1)
    assert trainer.parameters["w"] == pytest.approx(1.234567)
    things = [both.client, both.client._keys, both.server, trainer, report, trainer._client]
    assert not any("1.2345" in repr(thing) or f"{report.losses[0]:.4f}" in repr(thing) for thing in things)


def test_the_search_of_errors_finds_what_is_there() -> None:
    def leak() -> None:
        try:
            raise ValueError(f"{SECRET}")
        except ValueError:
            raise AutodiffError("invalid_message", "nothing here") from None

    leaking: Callable[[], None] = leak
    assert "7123" in text_of(refusal(leaking))
