"""The section `[model.kernel]` of a job file, whose keys are the fields of the kernel classes."""

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal, Self, Union

from pydantic import create_model, model_validator

from ridgestream.jobs.config.method_sections import AUTO, Definition, without_infinity
from ridgestream.jobs.config.section import Section, described
from ridgestream.pipeline.base.bounds import alternatives_of
from ridgestream.pipeline.base.settings import Setting, settings_of
from ridgestream.pipeline.kernels import KERNELS, has_gamma

GRID = "gamma"
"""The parameter that may be a list of values, among which a batch method chooses."""


class KernelKeys(Section):
    """The kernel."""

    name: str = "rbf"
    """The kernel's name."""

    @model_validator(mode="after")
    def _check_taken(self) -> Self:
        kernel: Any = KERNELS[self.name]
        untaken = self._given().keys() - {field.name for field in fields(kernel)}
        if untaken:
            raise ValueError(f"the {self.name} kernel takes no {', '.join(sorted(untaken))}")
        return self

    @property
    def is_open(self) -> bool:
        """Whether a pilot is to choose γ."""
        return has_gamma(self.name) and getattr(self, GRID) in (None, AUTO)

    def _given(self) -> dict[str, Any]:
        return {name: value for name, value in self.model_dump(exclude={"name"}).items() if value is not None}

    def parameters(self) -> tuple[dict[str, float], ...]:
        """Return the parameters, as far as given, of every kernel to compare."""
        given = self._given()
        values = given.get(GRID)
        if values == AUTO:
            return ({name: value for name, value in given.items() if name != GRID},)
        return tuple(given | {GRID: value} for value in values) if isinstance(values, tuple) else (given,)


def _define(of_kernels: dict[str, Setting]) -> Definition:
    """Return a parameter of one or several kernels, by their names, as a field of the section."""
    kinds = [without_infinity(kind) for setting in of_kernels.values() for kind in alternatives_of(setting.type)]
    name = next(iter(of_kernels.values())).name
    if name == GRID:
        kinds += [without_infinity(tuple.__class_getitem__((kind, ...))) for kind in kinds]
        kinds.append(Literal[AUTO])

    def sentence() -> str:
        return " ".join(f"{kernel}: {setting.sentence}" for kernel, setting in of_kernels.items())

    return Union[(*kinds, None)], described(None, sentence)


def _parameter_keys() -> dict[str, Any]:
    parameters: dict[str, dict[str, Setting]] = {}
    for name, kernel in KERNELS.items():
        for setting in settings_of(kernel):
            parameters.setdefault(setting.name, {})[name] = setting
    return {name: _define(of_kernels) for name, of_kernels in parameters.items()}


if TYPE_CHECKING:

    class KernelSection(KernelKeys):
        """The section with the parameters of every kernel."""

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401
            """Return the value of a kernel's parameter."""

else:
    KernelSection = create_model(
        "KernelSection",
        __base__=KernelKeys,
        name=(Literal[tuple(KERNELS)], "rbf"),
        **_parameter_keys(),
    )
    """The section with the parameters of every kernel."""
