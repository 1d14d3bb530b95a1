"""The inspect command: a store's partitions, its models, and what each run did."""

from dataclasses import asdict
from typing import Any

from ridgestream.jobs.console.confusion_table import confusion_facts, print_confusion
from ridgestream.jobs.console.log_format import finite
from ridgestream.jobs.report.cell_text import notable_cells, sentences_of_cells
from ridgestream.jobs.report.summary_text import criterion_of, figure
from ridgestream.jobs.runs.drift_warnings import drift_facts, drift_table
from ridgestream.jobs.runs.trivial_errors import night_skills, skill_cell
from ridgestream.pipeline.dataset.feature_map_growth import feature_map_of
from ridgestream.pipeline.features.metric_summary import summarize_metric
from ridgestream.pipeline.models.cell_summary import summarize_cells
from ridgestream.pipeline.models.cell_trials import TRIAL, trials_of
from ridgestream.pipeline.models.model_record import fitted_of, is_batch, is_refitted, n_basis_of
from ridgestream.pipeline.monitoring.drift import compare_partitions, drifting_columns
from ridgestream.pipeline.monitoring.segment_statistics import StatisticsReader
from ridgestream.stores.catalog.ledger import read_ledger
from ridgestream.stores.catalog.models import CONFUSION, ModelRecord, list_models, require_model
from ridgestream.stores.errors.translation import prefix_errors
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_location import StoreLocation

_COLUMNS = 8
"""Columns of a metric that are named at most."""


def run_inspect(location: StoreLocation) -> dict[str, Any]:
    """Return the partitions, quarantine and models of the store's last commit, as values that JSON can hold."""
    store = Store.open(location)
    snapshot = store.snapshot()
    root = store.root(snapshot)
    with prefix_errors(location.text):
        ledger = read_ledger(root)
        segments, records = StatisticsReader(root), [require_model(root, name) for name in list_models(root)]
        models = [
            _model_facts(record)
            | {"drifting": drifting_columns(record)}
            | {"drift": drift_facts(compare_partitions(segments, ledger, record, ledger.entries))}
            for record in records
        ]
    return {
        "store": location.text,
        "format_version": store.format_version,
        "snapshot": snapshot,
        "rows": ledger.rows,
        "schema": ledger.schema.as_dict() if ledger.schema else None,
        "partitions": [asdict(entry) for entry in ledger.entries],
        "quarantined": [asdict(each) for each in ledger.quarantined],
        "models": models,
    }


def _model_facts(record: ModelRecord) -> dict[str, Any]:
    facts = {
        "name": record.name,
        "parameters": record.parameters,
        "parameters_hash": record.parameters_hash,
        "data_snapshot": record.data_snapshot,
        "n_basis": n_basis_of(record),
        "counters": {name: finite(value) for name, value in record.counters.items()},
        "partitions_consumed": len(record.learned),
        "refitted": is_refitted(record),
        "serves": record.serves,
        "excluded": list(record.excluded),
        "history": [asdict(night) | night_skills(night) for night in record.history],
    }
    if metric := summarize_metric(feature_map_of(record)):
        facts["metric"] = metric
    if cells := summarize_cells(record):
        facts["cells"] = cells
    if trials := trials_of(record):
        facts["cell_trials"] = trials
    if record.encoding.get("classes"):
        facts["classes"] = record.encoding["classes"]
    path = fitted_of(record).path if is_batch(record) else None
    if path is not None:
        names = ("n_basis", "regularization", "width", "value")
        points = {name: [finite(v) for v in getattr(path, name).tolist()] for name in names}
        facts["path"] = {"criterion": path.criterion, "chosen": path.chosen, **points}
    if CONFUSION in record.arrays:
        facts["confusion"] = confusion_facts(record.encoding["classes"], record.arrays[CONFUSION].tolist())
    return facts


def show_inspection(contents: dict[str, Any]) -> None:
    """Print the contents as tables: fitted to a terminal's width, elsewhere in full width."""
    from ridgestream.jobs.console.tables import fitted_table, open_console

    console = open_console()
    console.print(f"store {contents['store']}  snapshot {contents['snapshot']}  rows {contents['rows']:,}")
    names = ("segment", "partition", "rows", "dropped", "bytes", "content")
    cells = [
        (
            str(entry["segment"]),
            entry["name"],
            f"{entry['rows']:,}",
            f"{entry['dropped']:,}",
            f"{entry['size_bytes']:,}",
            entry["content_sha256"][:12],
        )
        for entry in contents["partitions"]
    ]
    numbers = ("segment", "rows", "dropped", "bytes")
    table = fitted_table("partitions", names, cells, console.width, first=("partition", "rows"), right=numbers)
    console.print(table)
    for each in contents["quarantined"]:
        console.print(f"quarantine: {each['name']}, since {each['since']}: {each['reason']}")
    for model in contents["models"]:
        console.print(drift_table(model, console.width))
        if model["drifting"]:
            console.print(f"drifting: {', '.join(model['drifting'])}", soft_wrap=True)
        console.print(_history_table(model, console.width))
        console.print(_numerics_line(model))
        if "metric" in model:
            console.print(_metric_line(model["metric"]))
        if "cells" in model:
            console.print(_cell_table(model["cells"], console.width))
            console.print("\n".join(sentences_of_cells(model)), soft_wrap=True)
        if "cell_trials" in model:
            console.print(_trial_table(model["cell_trials"], console.width))
        if "confusion" in model:
            console.print(f"model {model['name']}, on the held-out rows of its last night:")
            print_confusion(console, model["confusion"])


def _numerics_line(model: dict[str, Any]) -> str:
    """Return λ, condition numbers, rounding error and jitter in one line; for a batch model, what its method chose."""
    c = model["counters"]
    if not c.get("normal_condition"):
        return _choice_line(model)
    jitter = f"at most {c['largest_jitter']:.2g}, at {c['jitter_count']} refreshes" if c["jitter_count"] else "none"
    refused = f", {c['refused']:,} rows refused for the condition of P" if c.get("refused") else ""
    return (
        f"λ {model['parameters']['regularization']:.4g}, condition of P {c['normal_condition']:.2g}, "
        f"of K {c['gram_condition']:.2g}, rounding error {c['rounding_error']:.2g} "
        f"(largest {c['largest_rounding_error']:.2g}), jitter {jitter}{refused}"
    )


def _metric_line(metric: dict[str, Any]) -> str:
    """Return the columns that distances depend on most, in one line."""
    leading = ", ".join(f"{each['column']} {100 * each['share']:.1f} %" for each in metric["importance"][:_COLUMNS])
    return f"metric {metric['form']}: distances depend on {leading}"


def _cell_table(cells: dict[str, Any], width: int) -> Any:  # noqa: ANN401
    from ridgestream.jobs.console.tables import fitted_table

    title = f"{cells['count']:,} cells, error {figure(cells['error'])}: the weakest, starved and busiest"
    names = ("cell", "", "rows", "vectors", "error", "rounding")
    rows = [
        (
            str(each["cell"]),
            kind,
            f"{each['rows']:,}",
            f"{each['n_basis']:,}",
            figure(each["error"]),
            figure(each["rounding_error"]),
        )
        for kind, each in notable_cells(cells)
    ]
    return fitted_table(title, names, rows, width, first=("cell", "", "error", "rows"), right=names[2:])


def _trial_table(trials: list[dict[str, Any]], width: int) -> Any:  # noqa: ANN401
    from ridgestream.jobs.console.tables import fitted_table

    names = ("cells", "rows a cell", "gamma", "penalty", "left out", "later")
    rows = [(f"{each['cells']:,}", *(figure(each[name]) for name in TRIAL[1:])) for each in trials]
    return fitted_table(
        "numbers of cells compared", names, rows, width, first=("cells", "left out", "later"), right=names
    )


def _choice_line(model: dict[str, Any]) -> str:
    """Return what a batch method chose, and from how many models; an empty text for an online model."""
    learner, path = model["parameters"].get("learner", {}), model.get("path")
    if "bias" not in learner:
        return ""
    kernel = ", ".join(f"{name} {value}" for name, value in learner["kernel"].items() if name != "name")
    name = model["parameters"]["method"]
    text = f"method {name}, λ {learner['regularization']:.4g}, {learner['kernel']['name']} {kernel}"
    if path is not None:
        value = path["value"][path["chosen"]]
        shown = "infinite" if value is None else f"{value:.4g}"
        text += f"; {criterion_of(path)} {shown}, best of {len(path['value'])} models"
    return text


def _history_table(model: dict[str, Any], width: int) -> Any:  # noqa: ANN401
    from ridgestream.jobs.console.tables import fitted_table

    refitted = ", refitted" if model["refitted"] else ""
    title = (
        f"model {model['name']}: {model['n_basis']} basis vectors{refitted}, "
        f"{model['partitions_consumed']} partitions consumed"
    )
    caption = "* refitted" if any(night["refitted"] for night in model["history"]) else ""
    numbers = ("parts", "rows", "seen", "basis", "progressive", "test", "skill", "seconds")
    cells = [_night_cells(night) for night in model["history"]]
    first = ("finished (UTC)", "rows", "test", "skill")
    return fitted_table(title, ("finished (UTC)", *numbers), cells, width, first=first, right=numbers, caption=caption)


def _night_cells(night: dict[str, Any]) -> tuple[str, ...]:
    test = night["test_error"] if night["test_error"] is not None else night["test_mse"]
    return (
        night["finished_at"][:16].replace("T", " "),
        str(len(night["partitions"])),
        f"{night['rows']:,}",
        f"{night['rows_seen']:,}",
        f"{night['n_basis']}{'*' if night['refitted'] else ''}",
        "" if night["progressive_error"] is None else f"{night['progressive_error']:.4g}",
        "" if test is None else f"{test:.4g}",
        skill_cell(night),
        f"{night['seconds']:.1f}",
    )
