"""Batches of arrays and of iterables, shuffling, and what data is refused before it is used."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steps import compiled, mse, spec
from tinychain.autodiff.backends.numpy import NumpyFunction
from tinychain.autodiff.runner import Trainer
from tinychain.autodiff.tracing import Tensor
from tinychain.autodiff.training import SGD
from trainers import Arrays, any_rows, by_hand, data, four_rows, refusal, squares, trainer


def cut(arrays: Arrays, *parts: slice) -> list[Arrays]:
    return [{name: array[part] for name, array in arrays.items()} for part in parts]


# -------------------------------------------------------------------------------------------------------- from arrays


def test_a_declared_size_cuts_the_batches() -> None:
    arrays, step = data(8), four_rows()
    losses, parameters, _ = by_hand(step, cut(arrays, slice(4), slice(4, 8)) * 2)
    training = trainer(step)
    assert training.fit(arrays, epochs=2).losses == tuple(losses)
    np.testing.assert_array_equal(training.parameters["w"], parameters["w"])


def test_batch_size_cuts_where_none_is_declared_and_the_last_batch_may_be_smaller() -> None:
    arrays, step = data(7), any_rows()
    losses, _, _ = by_hand(step, cut(arrays, slice(3), slice(3, 6), slice(6, 7)))
    assert trainer(step).fit(arrays, epochs=1, batch_size=3).losses == tuple(losses)


def test_without_a_size_there_is_one_batch() -> None:
    assert trainer().fit(data(7), epochs=2).steps == 2
    assert trainer().fit(data(7), epochs=2, batch_size=100).steps == 2


def test_rows_left_over_are_dropped_when_asked() -> None:
    arrays = data(7)
    assert trainer(four_rows()).fit(arrays, epochs=2, drop_remainder=True).steps == 2
    assert trainer().fit(arrays, epochs=1, batch_size=3, drop_remainder=True).steps == 2


@pytest.mark.parametrize(
    ("rows", "options", "parts"),
    [
        (7, {}, ["7 rows", "3 are left over from declared batches of 4 rows", "drop_remainder"]),
        (3, {"drop_remainder": True}, ["3 rows"]),
        (8, {"batch_size": 2}, ["8 rows", "batch_size is 2, but the step declares batches of 4 rows"]),
        (0, {}, ["0 rows"]),
    ],
)
def test_refuses_rows_that_make_no_batches_of_the_declared_size(
    rows: int, options: dict[str, Any], parts: list[str]
) -> None:
    training = trainer(four_rows())
    for function in (training.evaluate, lambda *args, **more: training.fit(*args, epochs=1, **more)):
        error = refusal(function, data(rows), **options)
        assert error.category == "invalid_training_data"
        for part in parts:
            assert part in error.message


def test_refuses_no_rows_and_fewer_than_a_batch() -> None:
    assert "0 rows" in refusal(trainer().fit, data(0), epochs=1).message
    assert "3 rows" in refusal(trainer().fit, data(3), epochs=1, batch_size=4, drop_remainder=True).message


@given(rows=st.integers(1, 30), size=st.integers(1, 30), seed=st.integers(0, 2**63 - 1))
def test_an_epoch_has_each_row_once_and_another_epoch_another_order(rows: int, size: int, seed: int) -> None:
    seen: list[float] = []

    def backend(program: Any) -> Callable[[dict[str, Any]], Any]:
        function = NumpyFunction(program)

        def call(arrays: dict[str, Any]) -> Any:
            if program is step.forward:
                seen.extend(arrays["v0"][:, 0].tolist())
                assert np.array_equal(arrays["v0"][:, 1], arrays["v1"][:, 0])
            return function(arrays)

        return call

    step = any_rows()
    x = np.repeat(np.arange(float(rows))[:, None], 3, axis=1)
    training = trainer(step, backend=backend, optimizer_inputs={"learning_rate": 0.0})
    training.fit({"x": x, "y": x[:, :1]}, epochs=2, batch_size=size, shuffle_seed=seed)
    orders = [seen[:rows], seen[rows:]]
    assert [sorted(order) for order in orders] == [list(range(rows))] * 2
    expected = [np.random.default_rng((seed, epoch)).permutation(rows).tolist() for epoch in (1, 2)]
    assert orders == expected


def test_the_same_seed_gives_the_same_run() -> None:
    results = []
    for seed in (3, 3, 4):
        training = trainer()
        training.fit(data(), epochs=2, batch_size=2, shuffle_seed=seed)
        results.append(training.parameters["w"].tobytes())
    assert results[0] == results[1] != results[2]


# ------------------------------------------------------------------------------------------------------ fixed, unread


def weighted(x: Tensor, y: Tensor, w: Tensor, weights: Tensor, unread: Tensor) -> Tensor:
    residual = (x @ w - y) * weights
    return (residual * residual).sum()


INPUTS = {"x": spec(4, 3), "y": spec(4, 1), "w": spec(3, 1), "weights": spec(1, 1), "unread": spec(9, 9)}


def test_a_fixed_input_is_the_same_in_every_step() -> None:
    step = compiled(loss=weighted, inputs=INPUTS)
    training = trainer(step, fixed={"weights": np.full((1, 1), 2.0)})
    plain = trainer(four_rows(loss=squares, optimizer=SGD()))
    assert training.fit(data(8), epochs=1).losses[0] == pytest.approx(4 * plain.fit(data(8), epochs=1).losses[0])


def test_an_input_that_the_loss_never_reads_may_be_given_or_not() -> None:
    step = compiled(loss=weighted, inputs=INPUTS)
    training = trainer(step, fixed={"weights": np.ones((1, 1))})
    for unread in ({}, {"unread": "anything"}):
        assert training.evaluate({**data(4), **unread}) > 0.0


@pytest.mark.parametrize(
    ("fixed", "parts"),
    [
        ({"z": 1.0}, ["fixed", "unknown ['z']"]),
        ({"w": np.zeros((3, 1))}, ["fixed", "unknown ['w']"]),
        ({"weights": 1.0}, ["'weights' of fixed", "f64[1, 1]"]),
        ([1.0], ["fixed", "mapping"]),
    ],
)
def test_refuses_another_fixed_input(fixed: Any, parts: list[str]) -> None:
    error = refusal(trainer, compiled(loss=weighted, inputs=INPUTS), fixed=fixed)
    assert error.category == "invalid_training_data"
    for part in parts:
        assert part in error.message


def test_a_scalar_is_no_batch() -> None:
    inputs = {"x": spec(4, 3), "y": spec(4, 1), "w": spec(3, 1), "s": spec()}
    step = compiled(loss=lambda x, y, w, s: mse(x, y, w) * s, inputs=inputs)
    training = trainer(step, fixed={"s": np.array(2.0)})
    assert training.evaluate(data(4)) > 0.0
    error = refusal(trainer(step).evaluate, {**data(4), "s": np.ones(4)})
    assert "['s'] are declared as scalars" in error.message
    assert "fixed" in error.message


def test_a_symbol_of_a_parameter_is_its_size_everywhere() -> None:
    inputs = {"x": spec("N", "D"), "y": spec("N", 1), "w": spec("D", 1)}
    training = trainer(any_rows(inputs=inputs))
    assert training.fit(data(), epochs=1).steps == 1
    error = refusal(training.evaluate, {"x": np.ones((4, 2)), "y": np.ones((4, 1))})
    assert "'x' of the data: expected f64[rows of x, 3]" in error.message


def test_a_symbol_that_is_bound_otherwise_is_a_declared_size() -> None:
    inputs = {"x": spec("N", "N"), "y": spec("N", 1), "w": spec("N", 1)}
    training = trainer(any_rows(inputs=inputs))
    square = {"x": np.ones((3, 3)), "y": np.ones((3, 1))}
    assert training.fit(square, epochs=1).steps == 1
    assert "declares batches of 3 rows" in refusal(training.evaluate, square, batch_size=2).message


def test_a_loss_of_parameters_alone_takes_one_step_an_epoch() -> None:
    step = compiled(loss=lambda w: (w * w).sum(), inputs={"w": spec(3, 1)}, optimizer=SGD())
    training = Trainer(
        step, backend=NumpyFunction, parameters={"w": np.ones((3, 1))}, optimizer_inputs={"learning_rate": 0.25}
    )
    assert training.fit({}, epochs=2).losses == (3.0, 0.75)


# ----------------------------------------------------------------------------------------------------- from elsewhere


def test_takes_batches_from_any_iterable() -> None:
    batches = cut(data(7), slice(4), slice(4, 7))
    losses, _, _ = by_hand(any_rows(), batches * 2)
    sources: list[Any] = [batches, tuple(batches), lambda epoch: iter(batches)]
    for source in sources:
        assert trainer().fit(source, epochs=2).losses == tuple(losses)
    assert trainer().fit(iter(batches), epochs=1).losses == tuple(losses[:2])


def test_a_function_is_told_the_number_of_the_epoch() -> None:
    seen = []

    def batches(epoch: int) -> Iterator[Arrays]:
        seen.append(epoch)
        yield data(epoch)

    trainer().fit(batches, epochs=3)
    assert seen == [1, 2, 3]


def test_batches_are_taken_one_at_a_time() -> None:
    taken: list[int] = []

    def batches() -> Iterator[Arrays]:
        for number in range(1, 4):
            taken.append(number)
            yield data(4)

    at_each_step: list[list[int]] = []
    trainer().fit(batches(), epochs=1, callbacks=[lambda record: at_each_step.append([*taken])])
    assert at_each_step == [[1], [1, 2], [1, 2, 3]]


def test_an_iterator_lasts_for_one_epoch() -> None:
    error = refusal(trainer().fit, iter([data(4)]), epochs=2)
    assert error.category == "invalid_training_data"
    assert "epoch 2 has no batch" in error.message


def test_a_bad_batch_is_refused_when_it_comes_and_the_steps_before_it_stand() -> None:
    training, once = trainer(), trainer()
    error = refusal(training.fit, [data(4), {**data(4), "y": np.full((4, 1), np.nan)}], epochs=1)
    once.fit(data(4), epochs=1)
    assert error.category == "invalid_training_data"
    assert "'y' of batch 2 of epoch 1" in error.message
    assert "nan at [0, 0]" in error.message
    np.testing.assert_array_equal(training.parameters["w"], once.parameters["w"])


@pytest.mark.parametrize("batch", [{"x": np.ones((4, 3))}, [1.0], {**data(4), "z": 1.0}])
def test_a_batch_with_other_names_is_refused(batch: Any) -> None:
    error = refusal(trainer().fit, [batch], epochs=1)
    assert error.category == "invalid_training_data"
    assert "batch 1 of epoch 1: expected" in error.message


def test_the_arrays_of_a_batch_have_equally_many_rows() -> None:
    error = refusal(trainer().fit, [{"x": np.ones((4, 3)), "y": np.ones((5, 1))}], epochs=1)
    assert "'y' of batch 1 of epoch 1" in error.message
    assert "'N'" in error.message


@pytest.mark.parametrize("batches", [(np.ones((4, 3)), np.ones((4, 1))), [(np.ones((4, 3)), np.ones((4, 1)))]])
def test_batches_without_names_are_told_the_form(batches: Any) -> None:
    message = refusal(trainer().fit, batches, epochs=1).message
    assert 'batch 1 of epoch 1: expected a mapping {"x": ..., "y": ...}, got ' in message
    assert len(message) < 300


@pytest.mark.parametrize("options", [{"batch_size": 4}, {"shuffle_seed": 1}, {"drop_remainder": True}])
def test_batches_are_not_cut_again(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="batches already"):
        trainer().fit([data(4)], epochs=1, **options)


# ---------------------------------------------------------------------------------------------------------- bad arrays


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"x": None}, ["missing are ['x']"]),
        ({"z": np.ones((8, 1))}, ["unknown ['z']"]),
        ({"w": np.ones((3, 1))}, ["unknown ['w']"]),
        ({"x": np.ones((8, 2))}, ["'x' of the data", "f64[rows of x, 3]", "[8, 2]"]),
        ({"x": np.ones(8)}, ["'x' of the data", "[8]"]),
        ({"x": np.float64(1.0)}, ["'x' of the data", "shape []"]),
        ({"y": np.ones((7, 1))}, ["equally many rows", "{'x': 8, 'y': 7}"]),
        ({"x": np.ones((8, 3), np.float32)}, ["'x' of the data", "f64", "float32", "nothing is cast"]),
        ({"x": np.ones((8, 3), int)}, ["'x' of the data", "int64"]),
        ({"x": "text"}, ["'x' of the data", "<U4"]),
        ({"x": [[1.0], [2.0, 3.0]]}, ["'x' of the data", "inhomogeneous"]),
        ({"y": np.array([[0.0]] * 5 + [[np.inf]] + [[0.0]] * 2)}, ["'y' of the data", "finite", "inf at [5, 0]"]),
    ],
)
@pytest.mark.parametrize("step", [any_rows, four_rows])
def test_bad_arrays_are_refused_before_the_first_step(
    step: Callable[[], Any], changes: dict[str, Any], parts: list[str]
) -> None:
    training, calls = trainer(step()), list[int]()
    arrays = {name: array for name, array in {**data(8), **changes}.items() if array is not None}
    error = refusal(training.fit, arrays, epochs=1, callbacks=[lambda record: calls.append(record.step)])
    assert error.category == "invalid_training_data"
    for part in parts:
        assert part in error.message
    assert "symbol" not in error.message
    assert calls == []


@pytest.mark.parametrize("batches", [[data(0)], [data(4), data(0)], lambda epoch: [data(0)]])
def test_refuses_a_batch_without_rows(batches: Any) -> None:
    for function in (trainer().evaluate, lambda given: trainer().fit(given, epochs=1)):
        error = refusal(function, batches)
        assert error.category == "invalid_training_data"
        assert re.search(r"batch [12] of epoch 1 has no rows", error.message)


def test_a_scalar_beside_the_rows_of_a_batch_is_no_row() -> None:
    step = any_rows(
        loss=lambda x, y, w, s: squares(x, y, w) * s,
        inputs={"x": spec("N", 3), "y": spec("N", 1), "w": spec(3, 1), "s": spec()},
    )
    given = [{**data(4), "s": np.array(2.0)}, {**data(2), "s": np.array(2.0)}]
    expected = [2 * trainer().evaluate(data(rows)) for rows in (4, 2)]
    assert trainer(step).evaluate(given) == pytest.approx((4 * expected[0] + 2 * expected[1]) / 6)


@pytest.mark.parametrize("value", [None, 3])
def test_a_function_that_returns_no_batches_is_told(value: Any) -> None:
    error = refusal(trainer().fit, lambda epoch: value, epochs=1)
    assert error.category == "invalid_training_data"
    assert f"data, a function, must return the batches of epoch 1, got {value}" in error.message


@pytest.mark.parametrize("value", [3, None])
def test_refuses_what_is_no_data(value: Any) -> None:
    with pytest.raises(TypeError, match="data must be arrays by name"):
        trainer().fit(value, epochs=1)


@pytest.mark.parametrize(
    "options", [{"batch_size": 0}, {"batch_size": 2.0}, {"batch_size": True}, {"shuffle_seed": -1}]
)
def test_refuses_a_bad_option(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(ValueError, match=name):
        trainer().fit(data(), epochs=1, **options)
