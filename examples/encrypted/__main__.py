"""Trains three models on encrypted data, on a server in another process that never sees them.

Run it with `make run-encrypted`, or one of the models with `python -m examples.encrypted --model network`.
"""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

from examples.encrypted.models import MODELS
from examples.encrypted.training import TOLERANCE, Outcome, run, serve
from tinychain.autodiff.backends import ckks

#: What is run where nothing is asked for: the model, the steps, and how many of them between two refreshes.
RUNS = (("linear", 20, 1), ("linear", 6, 2), ("logistic", 20, 1), ("network", 20, 1))

MEBI = 2**20


def table_of(name: str, outcome: Outcome) -> Table:
    plan, cost, report, parameters = outcome.plan, outcome.cost, outcome.report, outcome.plan.parameters
    shape = " x ".join(map(str, MODELS[name].shapes["x"]))
    table = Table("what", title=f"{MODELS[name].title}; {shape}, {report.steps} steps")
    table.add_column("predicted", justify="right")
    table.add_column("measured", justify="right")

    def fact(what: str, value: object) -> None:
        table.add_row(what, "", str(value))

    fact("ring", f"{parameters.ring_size:,}")
    moduli = [*parameters.base_bits, f"{parameters.depth} x {parameters.scale_bits}", parameters.special_bits]
    fact("moduli, bits", f"{' + '.join(map(str, moduli))} = {parameters.total_bits}")
    fact("scale, bits", parameters.scale_bits)
    fact("levels", plan.circuit.depth)
    fact("steps per refresh", plan.steps_per_refresh)
    fact("values not proven to fit", len(plan.unproven))
    fact("products of secrets per refresh", cost.secret_multiplications)
    fact("rotations per refresh", cost.rotations)
    table.add_section()

    def seconds(what: str, predicted: float, measured: float) -> None:
        """Predicted in a request, and measured in all of them."""
        found = f"{measured / report.steps:.3f} ({measured / (predicted * report.requests) - 1:+.0%})"
        table.add_row(f"s per step, {what}", f"{predicted / plan.steps_per_refresh:.3f}", found)

    seconds("server computing", cost.seconds, sum(report.operation_seconds.values()))
    seconds("server in all", cost.server_seconds, report.server_seconds)
    seconds("client", cost.client_seconds, report.encrypt_seconds + report.decrypt_seconds)
    if outcome.start_bytes is not None and outcome.peak_bytes is not None:
        expected = outcome.start_bytes + cost.peak_bytes
        found = f"{outcome.peak_bytes / MEBI:.0f} ({outcome.peak_bytes / expected - 1:+.0%})"
        table.add_row("MiB of the server's process", f"{expected / MEBI:.0f}", found)
    fact("MiB sent to the server", f"{report.bytes_sent / MEBI:.1f}")
    fact("MiB sent back", f"{report.bytes_received / MEBI:.1f}")
    table.add_section()
    rehearsed = ckks.rehearse(plan, MODELS[name].sample())
    for parameter, error in outcome.errors.items():
        table.add_row(f"error of {parameter} in a refresh", f"{rehearsed[parameter]:.1e}", f"{error:.1e}")
        if plan.steps_per_refresh == 1:
            table.add_row("  on the worst data", f"<= {plan.error_bounds[parameter]:.1e}", "")
    is_close = outcome.difference < TOLERANCE
    verdict = f"{'below' if is_close else 'NOT below'} {TOLERANCE:.0e}"
    fact("largest difference from NumPy", f"{outcome.difference:.1e} ({verdict})")
    fact("accuracy, test, encrypted", f"{outcome.accuracy:.2%}")
    fact("accuracy, test, NumPy", f"{outcome.plain_accuracy:.2%}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.encrypted", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", choices=MODELS, help="run this one alone (default: all)")
    parser.add_argument("--steps", type=int, default=20, help="full-batch steps of it (default %(default)s)")
    parser.add_argument("--steps-per-refresh", type=int, default=1, help="on the server (default %(default)s)")
    parser.add_argument("--server", choices=MODELS, help="be the server of this one, over stdin and stdout")
    arguments = parser.parse_args()
    if arguments.server:
        serve(arguments.server, arguments.steps_per_refresh)
        return
    console = Console()
    console.print(
        "Training on encrypted data. Features, labels, weights and states are secret; the client has the keys.",
        "The server, another process, has the model and the evaluation keys, and computes on ciphertexts alone.",
        "Errors are predicted by a rehearsal on made-up data, and bounded for the worst data in the declared ranges.",
        sep="\n",
    )
    one = (arguments.model, arguments.steps, arguments.steps_per_refresh)
    agreed = True
    for name, steps, steps_per_refresh in (one,) if arguments.model else RUNS:
        outcome = run(name, steps, steps_per_refresh)
        console.print(table_of(name, outcome))
        agreed = agreed and outcome.agrees
    if not agreed:
        raise SystemExit("Encrypted and plain training disagree.")
    console.print("Encrypted and plain training have come to the same models.")


if __name__ == "__main__":
    main()
