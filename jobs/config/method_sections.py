"""Sections and keys of job files, made from the settings classes of the methods: names, types, bounds, defaults.

A setting whose default is a number and that may be None, for no limit, is written "unlimited" in a job file.
"""

from collections.abc import Iterable
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import Field, create_model
from pydantic.fields import FieldInfo

from ridgestream.jobs.config.section import Section, described
from ridgestream.pipeline.base.bounds import alternatives_of
from ridgestream.pipeline.base.settings import Setting, settings_of
from ridgestream.pipeline.batch.registry import METHODS, section_of
from ridgestream.pipeline.batch.shared_settings import own_settings, shared_settings
from ridgestream.pipeline.metric.settings import MetricSettings
from ridgestream.pipeline.models.model_record import LSTD
from ridgestream.pipeline.online.settings import OnlineSettings
from ridgestream.pipeline.policy.value_function import PolicySettings
from ridgestream.pipeline.training.request import MAX_BASIS, REGULARIZATION, THRESHOLDS

UNLIMITED = "unlimited"
"""What a job file says for None, where absence means a number."""

AUTO: Final = "auto"
"""What a job file says, or means by its absence, for a setting that the pilot of a new model chooses."""

CHOOSABLE = frozenset({REGULARIZATION, MAX_BASIS}) | THRESHOLDS
"""The settings of methods that a pilot can choose."""

Definition = tuple[Any, FieldInfo]
"""Type and field, as `create_model` takes them."""


def _define_choosable(setting: Setting) -> Definition:
    """Return a setting that may be "auto", and is by default if a pilot can choose it, as a field of `[model]`."""
    kind, field = _define(setting)
    if setting.name not in CHOOSABLE:
        return kind, field
    return Union[kind, Literal[AUTO]], described(AUTO, lambda: setting.sentence)  # noqa: UP007 (made at run time)


def _define(setting: Setting) -> Definition:
    """Return a setting as a field of a section."""
    kinds = [without_infinity(kind) for kind in alternatives_of(setting.type) if kind is not NoneType]
    if NoneType in alternatives_of(setting.type):
        kinds.append(NoneType if setting.default is None else Literal[UNLIMITED])
    return Union[tuple(kinds)], described(setting.default, lambda: setting.sentence)  # noqa: UP007 (made at run time)


def without_infinity(kind: Any) -> Any:  # noqa: ANN401
    """Return the type without infinity and NaN, which are within some bounds but never a setting."""
    if get_origin(kind) is tuple:
        several: Any = tuple.__class_getitem__((without_infinity(get_args(kind)[0]), ...))
        return Annotated[several, Field(min_length=1)]
    if hasattr(kind, "__metadata__") and get_args(kind)[0] is float:
        return Annotated[kind, Field(allow_inf_nan=False)]
    return kind


def _make_section(name: str, kind: type, settings: Iterable[Setting]) -> type[Section]:
    fields: dict[str, Any] = {setting.name: _define(setting) for setting in settings}
    return create_model(f"{name}_section", __base__=Section, __doc__=kind.__doc__, **fields)


if TYPE_CHECKING:

    class MetricSection(Section):
        """How a metric is learned."""

else:
    MetricSection = _make_section("metric_options", MetricSettings, settings_of(MetricSettings))
    """How a metric is learned."""


METHOD_SECTIONS: dict[str, type[Section]] = {
    section_of(name): _make_section(section_of(name), method.settings, own_settings(method.settings))
    for name, method in METHODS.items()
    if own_settings(method.settings)
} | {LSTD: _make_section(LSTD, PolicySettings, settings_of(PolicySettings))}
"""The section of each method with settings of its own, by its key below `[model]`."""


def online_settings() -> tuple[Setting, ...]:
    """Return the settings of the online learner that are keys of `[model]`."""
    return tuple(setting for setting in settings_of(OnlineSettings) if setting.name != "kernel")


def model_keys() -> dict[str, Any]:
    """Return the fields of `[model]` that methods take: shared settings, and a section for each method."""
    keys: dict[str, Any] = {
        setting.name: _define_choosable(setting) for setting in (*online_settings(), *shared_settings())
    }
    for name, section in METHOD_SECTIONS.items():
        keys[name] = (section | None, Field(default=None, description=f"Settings of method {name.replace('_', '-')}."))
    return keys


def keys_of(method: str) -> frozenset[str]:
    """Return the keys of `[model]` that a batch method takes, by its settings class, or policy evaluation."""
    if method == LSTD:
        return frozenset({REGULARIZATION, MAX_BASIS, LSTD}) | THRESHOLDS
    settings = METHODS[method].settings
    own = {setting.name for setting in own_settings(settings)}
    shared = {setting.name for setting in settings_of(settings)} - own
    return frozenset(shared | settings.also_takes | ({section_of(method)} & METHOD_SECTIONS.keys()))
