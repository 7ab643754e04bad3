"""Fitted estimators on disk: safetensors and JSON, no pickle."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from noisewright.methods.density_ratio.conditions import ConditionTable
from noisewright.methods.density_ratio.flow import TrainedFlow, build_net
from noisewright.methods.density_ratio.plan import checked_plan
from noisewright.storage import load_record, save_record
from noisewright.types import InputError

__all__ = ["read_model", "write_model"]

FORMAT = 1
FITTED = ("seed_", "centre_", "scale_", "folds_", "keys_", "blur_")


def write_model(model: Any, path: str | Path) -> Path:
    """Write a fitted estimator into a folder, which is replaced as a whole if it exists."""
    parameters = model.get_params()
    parameters |= {"hidden": list(model.hidden), "random_state": model.seed_}
    flows = [
        {"steps": f.steps, "loss": f.held_out_loss, "weights": dict(f.net.state_dict())}
        for f in model.flows_
    ]
    fitted = {name: getattr(model, name) for name in FITTED}
    record = {"format": FORMAT, "parameters": parameters, "table": asdict(model.table_)}
    return save_record(path, record | {"flows": flows, "fitted": fitted})


def read_model(kind: Any, path: str | Path) -> Any:
    """Return an estimator of a class as :func:`write_model` left it.

    Raises:
        FileNotFoundError: If there is nothing.
        DamagedRecordError: If a file is cut short or altered.
        InputError: If it is of another format.
    """
    record = load_record(path)
    if record.get("format") != FORMAT:
        raise InputError(f"{path} has format {record.get('format')!r}; this reads {FORMAT}")
    parameters = record["parameters"]
    model = kind(**parameters | {"hidden": tuple(parameters["hidden"])})
    for name in FITTED:
        setattr(model, name, record["fitted"][name])
    table = record["table"]
    model.table_ = ConditionTable(
        tuple(table["names"]),
        tuple(map(tuple, table["values"])),
        tuple(map(tuple, table["combinations"])),
    )
    model.conditions_ = model.table_.labels
    model.n_features_in_ = len(model.centre_)
    classes = [len(values) for values in model.table_.values]
    plan = checked_plan(model.get_params())
    model.flows_ = []
    for stored in record["flows"]:
        net = build_net(model.n_features_in_, classes, plan, seed=0)
        net.load_state_dict(stored["weights"])
        model.flows_.append(TrainedFlow(net.eval(), stored["steps"], stored["loss"]))
    return model
