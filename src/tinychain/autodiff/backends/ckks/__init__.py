"""Training on encrypted data: CKKS, with chosen parameters, packed tensors, and a client and a server.

step = compile_training_step(..., handlers=ckks_registry(), bind_input=bind_input, forward_expansions=[Legalize(CKKS)],
                             derivative_expansions=[Legalize(CKKS)], update_expansions=[Legalize(CKKS)])
plan = plan_training(step, secret=["x", "y", "w"], ranges={"x": (-1.0, 1.0), ...})
EncryptedTrainer(plan, Server(plan).handle, parameters={"w": zeros}).fit({"x": x, "y": y}, steps=20)

Needs the extra `ckks`; importing `tinychain.autodiff` loads none of it.
"""

from __future__ import annotations

from tinychain.autodiff.backends.ckks.calibration import Calibration, measure
from tinychain.autodiff.backends.ckks.client import Client, connect
from tinychain.autodiff.backends.ckks.costs import Cost
from tinychain.autodiff.backends.ckks.explanation import PlanExplanation, explain_plan
from tinychain.autodiff.backends.ckks.handlers import bind_input, ckks_registry
from tinychain.autodiff.backends.ckks.parameters import Parameters
from tinychain.autodiff.backends.ckks.plan import TrainingPlan
from tinychain.autodiff.backends.ckks.planning import plan_training
from tinychain.autodiff.backends.ckks.rehearsal import rehearse
from tinychain.autodiff.backends.ckks.server import Server, serve
from tinychain.autodiff.backends.ckks.target import CKKS
from tinychain.autodiff.backends.ckks.trainer import EncryptedReport, EncryptedTrainer

__all__ = [
    "CKKS",
    "Calibration",
    "Client",
    "Cost",
    "EncryptedReport",
    "EncryptedTrainer",
    "Parameters",
    "PlanExplanation",
    "Server",
    "TrainingPlan",
    "bind_input",
    "ckks_registry",
    "connect",
    "explain_plan",
    "measure",
    "plan_training",
    "rehearse",
    "serve",
]
