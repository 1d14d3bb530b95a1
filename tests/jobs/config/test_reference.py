"""The reference of job files: every key has a sentence, and shows what the sections and learners enforce."""

from dataclasses import MISSING, replace
from typing import Any

import pytest
from support.jobs.jobs import Workplace

from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.config.method_sections import CHOOSABLE
from ridgestream.jobs.config.model_section import ModelSection
from ridgestream.jobs.config.reference import Entry, list_keys
from ridgestream.jobs.config.requests import model_request
from ridgestream.jobs.config.values import JobFileError
from ridgestream.pipeline.base.settings import settings_of
from ridgestream.pipeline.batch.registry import METHODS, section_of
from ridgestream.pipeline.batch.shared_settings import own_settings
from ridgestream.pipeline.online.settings import OnlineSettings
from ridgestream.pipeline.training.request import LARGEST_CHOSEN, BatchRequest

OPEN = ("model.max_basis", "model.regularization", "model.kernel.gamma")

KEYS = {entry.key: entry for entry in list_keys()}


@pytest.mark.parametrize("entry", KEYS.values(), ids=KEYS)
def test_every_key_has_a_sentence_and_a_type(entry: Entry) -> None:
    assert len(entry.sentence) > 10
    assert entry.sentence.endswith(".")
    assert entry.type


@pytest.mark.parametrize("kind", [OnlineSettings, *(method.settings for method in METHODS.values())])
def test_every_setting_has_a_sentence_and_a_default(kind: type) -> None:
    for setting in settings_of(kind):
        assert setting.sentence, setting.name
        assert setting.default is not MISSING or setting.name == "kernel"


def test_types_bounds_and_defaults_are_shown() -> None:
    assert KEYS["model.orols.tolerance"].default == 3e-3
    assert KEYS["model.orols.patience"] == Entry(
        "model.orols.patience",
        "a whole number ≥ 1",
        5,
        is_required=False,
        sentence="The consecutive steps in which λ must have been stationary; or twice as many without a lower GCV.",
    )
    assert KEYS["model.max_basis"].type == 'a whole number ≥ 1 or "unlimited" or "auto"'
    assert KEYS["model.regularization"].type == 'a number > 0 or "auto" or a list of one or more, each a number > 0'
    assert KEYS["model.metric"].default == KEYS["model.max_basis"].default == KEYS["model.regularization"].default
    assert KEYS["model.max_basis"].default == "auto"
    assert KEYS["model.ols.candidates"].type == 'a whole number ≥ 1 or "all"'
    assert KEYS["source.path"].is_required


@pytest.mark.parametrize("method", METHODS)
def test_a_job_without_keys_asks_for_the_method_s_defaults_and_leaves_the_rest_to_a_pilot(
    method: str, tmp_path: Any
) -> None:
    work = Workplace(tmp_path)
    work.put(0)
    request = model_request(read_job(work.job({"model.method": method} | dict.fromkeys(OPEN)), {}))
    assert isinstance(request, BatchRequest)
    defaults = METHODS[method].settings()
    bounded = {"max_basis": LARGEST_CHOSEN} if hasattr(defaults, "max_basis") else {}
    assert request.settings == replace(defaults, **bounded)
    takes = {name for name in ("regularization", "max_basis") if hasattr(defaults, name)}
    assert request.chooses == {"kernel.gamma", *takes} - ({"max_basis"} if METHODS[method].chooses_size else set())
    own = {setting.name: setting.default for setting in own_settings(METHODS[method].settings)}
    assert request.parameters().get(section_of(method), {}) == own


def test_the_online_learner_s_defaults_are_the_job_s() -> None:
    model = ModelSection()
    for setting in settings_of(OnlineSettings):
        if setting.name != "kernel":
            assert getattr(model, setting.name) == ("auto" if setting.name in CHOOSABLE else setting.default)


@pytest.mark.parametrize("method", ["fvs", "orols"])
def test_a_bound_of_a_learner_is_refused_with_its_key(method: str, tmp_path: Any) -> None:
    key, value = {"fvs": ("spanned_threshold", 1e-12), "orols": ("condition_limit", 1.0)}[method]
    job = Workplace(tmp_path).job(
        {"model.method": method, "model.regularization": None, f"model.{method}.{key}": value}
    )
    with pytest.raises(JobFileError, match=rf"model\.{method}\.{key}: must be a number [>≥] "):
        read_job(job, {})
