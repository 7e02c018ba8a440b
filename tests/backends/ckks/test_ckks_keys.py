"""Keys: who can decrypt, what the bytes hold, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ckks_circuits import SMALL, session
from tinychain.autodiff.backends.ckks import library
from tinychain.autodiff.backends.ckks.keys import EvaluationKeys, SecretKeys
from tinychain.autodiff.backends.ckks.library import from_bytes, seal, to_bytes
from tinychain.autodiff.backends.ckks.parameters import Parameters
from tinychain.autodiff.errors import AutodiffError

TINY = Parameters(1024, 30, (40,), 1, 50, secure=False)
SLOTS = np.linspace(-1.0, 1.0, 1024)


@pytest.mark.parametrize("depth", range(SMALL.depth + 1))
def test_what_is_encrypted_at_a_depth_is_decrypted(depth: int) -> None:
    secret = session().secret
    assert np.max(np.abs(secret.decrypt(secret.encrypt(SLOTS, depth)) - SLOTS)) < 1e-9


def test_slots_that_are_left_are_zero() -> None:
    secret = session().secret
    slots = secret.decrypt(secret.encrypt(np.ones(3)))
    assert slots.shape == (1024,)
    np.testing.assert_allclose(slots[:5], [1, 1, 1, 0, 0], atol=1e-9)


def test_two_encryptions_of_the_same_differ() -> None:
    secret = session().secret
    assert secret.encrypt(SLOTS) != secret.encrypt(SLOTS)


def test_sessions_differ() -> None:
    first, second = SecretKeys.generate(TINY, []), SecretKeys.generate(TINY, [])
    assert len(first.session) == 16
    assert first.session != second.session
    assert EvaluationKeys.from_bytes(TINY, first.evaluation_keys).session == first.session


def test_keys_of_another_session_decrypt_to_noise() -> None:
    foreign = SecretKeys.generate(SMALL, []).decrypt(session().secret.encrypt(SLOTS))
    assert np.std(foreign) > 1.0


def test_evaluation_keys_have_exactly_the_rotations_that_were_asked_for() -> None:
    secret = SecretKeys.generate(TINY, [0, 3, -1, 3, 512])
    keys = EvaluationKeys.from_bytes(TINY, secret.evaluation_keys)
    assert keys.rotations == (3, 511)
    keys.require([3, -1, 511, 1024])
    with pytest.raises(
        AutodiffError, match=r"no Galois key for 1 rotations that the plan needs, by \[2\] slots"
    ) as caught:
        keys.require([2, 3])
    assert caught.value.category == "invalid_encryption_key"


def test_a_server_has_nothing_to_decrypt_with() -> None:
    secret = SecretKeys.generate(TINY, [1])
    keys = EvaluationKeys.from_bytes(TINY, secret.evaluation_keys)
    names = {type(value).__name__ for value in [*vars(keys).values(), *vars(keys.moduli).values()]}
    assert names & {"SecretKey", "Decryptor", "Encryptor", "KeyGenerator"} == set()
    with pytest.raises(TypeError):
        seal.Decryptor(keys.moduli.context, keys.relinearization)


def test_nothing_secret_is_in_a_repr() -> None:
    secret = SecretKeys.generate(TINY, [1])
    assert repr(secret) == "SecretKeys(ring_size=1024)"
    assert (
        repr(EvaluationKeys.from_bytes(TINY, secret.evaluation_keys)) == "EvaluationKeys(ring_size=1024, rotations=1)"
    )


def test_values_that_cannot_be_encrypted_are_refused_without_a_value() -> None:
    with pytest.raises(AutodiffError) as caught:
        session().secret.encrypt(np.array([1.0, 12345678.9e9]), 4)
    assert caught.value.category == "value_out_of_range"
    assert "encoding 2 slots at depth 4" in caught.value.message
    assert "123" not in caught.value.message


def test_bytes_that_end_too_early_or_too_late_are_no_keys() -> None:
    data = SecretKeys.generate(TINY, [1]).evaluation_keys
    for size in [0, 5, 16, 20, 24, 30, 1000, len(data) - 1]:
        with pytest.raises(AutodiffError) as caught:
            EvaluationKeys.from_bytes(TINY, data[:size])
        assert caught.value.category == "invalid_message"
    with pytest.raises(AutodiffError, match="evaluation keys have 1 bytes too many"):
        EvaluationKeys.from_bytes(TINY, data + b"x")


def test_keys_of_other_parameters_are_refused() -> None:
    data = SecretKeys.generate(TINY, [1]).evaluation_keys
    with pytest.raises(AutodiffError, match="reading relinearization keys from") as caught:
        EvaluationKeys.from_bytes(Parameters(1024, 31, (40,), 1, 50, secure=False), data)
    assert caught.value.category == "invalid_message"


def test_keys_that_lack_an_announced_rotation_are_refused() -> None:
    """The steps follow the session and their length: one of them is announced as another."""
    data = bytearray(SecretKeys.generate(TINY, [1]).evaluation_keys)
    assert data[24:28] == b"\1\0\0\0"
    data[24] = 2
    with pytest.raises(AutodiffError, match="announce 1 rotations and have 1 Galois keys; 1 are missing") as caught:
        EvaluationKeys.from_bytes(TINY, bytes(data))
    assert caught.value.category == "invalid_encryption_key"


def test_bytes_that_are_no_ciphertext_are_refused() -> None:
    secret = session().secret
    for data in (b"", b"nothing", secret.encrypt(SLOTS)[:-10], secret.evaluation_keys[:1000]):
        with pytest.raises(AutodiffError, match=f"reading ciphertext from {len(data)} bytes") as caught:
            secret.decrypt(data)
        assert caught.value.category == "invalid_message"


def test_no_file_is_left_and_nobody_else_can_read_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    class Saved:
        def save(self, path: str) -> None:
            seen.extend([Path(path).stat().st_mode & 0o777, Path(path).parent.stat().st_mode & 0o777])
            Path(path).write_bytes(b"saved")

    monkeypatch.setattr(library, "_MEMORY", tmp_path)
    assert to_bytes(Saved()) == b"saved"
    with pytest.raises(AutodiffError):
        from_bytes("ciphertext", session().keys.moduli.context, b"nothing")
    assert seen == [0o600, 0o700]
    assert list(tmp_path.iterdir()) == []
