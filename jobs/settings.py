"""The job file: TOML, with flags over environment over file over default; every error at once, each with its key."""

import os
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


class JobFileError(ValueError):
    """The job file, the environment or the flags do not make a job; the message lists every key that is wrong."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SourceSection(_Section):
    """Where rows come from, and which column is what."""

    path: str
    """Folder of Parquet partitions, or one file."""
    target: str
    """The column to predict."""
    positive: bool | int | float | str | None = None
    """The class that counts as +1 against all others as −1; without it the target is a number to regress on."""
    features: tuple[str, ...] = ()
    """The feature columns; every other column if not given."""
    ignore: tuple[str, ...] = ()
    """Columns that are no features."""
    categorical: tuple[str, ...] = ()
    """Features whose numbers are names; text is always taken so."""
    weight: str | None = None
    """The column of row weights."""


class KernelSection(_Section):
    """The kernel."""

    name: Literal["rbf", "polynomial", "linear"] = "rbf"
    """Which."""
    gamma: Annotated[float, Field(gt=0)] | None = None
    """Width of rbf, scale of polynomial; 1/n_features if not given."""
    degree: Annotated[int, Field(ge=1)] | None = None
    """Of polynomial."""
    coef0: Annotated[float, Field(ge=0)] | None = None
    """Of polynomial."""


class ModelSection(_Section):
    """What the model is to be."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")] = "model"
    """Its name in the store."""
    method: Literal["online"] = "online"
    """The single-pass online LS-SVM."""
    kernel: KernelSection = KernelSection()
    """The kernel."""
    regularization: Annotated[float, Field(gt=0)] = 1e-5
    """λ per row."""
    max_basis: Annotated[int, Field(ge=1)] = 500
    """The largest dictionary."""
    novelty_threshold: Annotated[float, Field(ge=0)] = 1e-2
    """TOL1."""
    usefulness_threshold: Annotated[float, Field(ge=0)] = 1e-4
    """TOL2, in squared target units."""
    scaling_rows: Annotated[int, Field(ge=1)] | Literal["all"] = 10_000
    """The first partitions with so many rows fix the standardization; "all": those there at the first training."""


class EvaluateSection(_Section):
    """Held-out rows."""

    path: str
    """Folder of Parquet partitions with the target, or one file."""


class PredictSection(_Section):
    """Rows to predict."""

    path: str
    """Folder of Parquet partitions, or one file."""
    output: str
    """Folder for the predictions, one file a partition."""
    keep: tuple[str, ...] = ()
    """Columns of the input that the output repeats."""


class Job(BaseSettings):
    """A job, validated; paths are as written and relative to the folder of its file."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, env_prefix="RIDGESTREAM_", env_nested_delimiter="__")

    store: str
    """Where the store is: a local folder, or a URL that Icechunk takes."""
    source: SourceSection
    """Where rows come from."""
    model: ModelSection = ModelSection()
    """What the model is to be."""
    evaluate: EvaluateSection | None = None
    """Held-out rows."""
    predict: PredictSection | None = None
    """Rows to predict."""
    memory_limit: str | int | None = None
    """What a process may use, such as "4GB"; what is free if not given."""
    cluster: str = "none"
    """none, local, or a scheduler's address."""

    @field_validator("memory_limit")
    @classmethod
    def _parse_bytes(cls, value: str | int | None) -> int | None:
        return parse_bytes(value) if isinstance(value, str) else value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Put flags first, then the environment, then the file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)

    def path(self, text: str) -> Path:
        """Return a local path of the job file as it is meant: relative to the folder of the file."""
        return Path(os.path.normpath(self.base / Path(text).expanduser()))

    @property
    def base(self) -> Path:
        """The folder of the job file."""
        file = self.model_config.get("toml_file")
        return Path(str(file)).resolve().parent if file else Path.cwd()


def read_job(path: Path, flags: dict[str, Any]) -> Job:
    """Read a job file; `flags` are nested like the file and go before it and the environment.

    Raises JobFileError naming the file and every key that is missing, unknown or wrong.
    """
    if not path.is_file():
        raise JobFileError(f"there is no job file {path}")

    class JobFromFile(Job):
        model_config = SettingsConfigDict(toml_file=path)

    try:
        return JobFromFile(**flags)
    except ValidationError as error:
        lines = [f"  {'.'.join(str(part) for part in e['loc'])}: {_explain(e)}" for e in error.errors()]
        raise JobFileError("\n".join([f"the job {path} cannot be used:", *lines])) from error
    except (tomllib.TOMLDecodeError, SettingsError) as error:
        raise JobFileError(f"the job {path} cannot be read: {error}") from error
    except OSError as error:
        raise JobFileError(f"the job {path} cannot be read: {error.strerror}") from error


def parse_flags(assignments: list[str]) -> dict[str, Any]:
    """Turn `model.max_basis=100` and the like into nested settings; values are TOML, or text where that fails."""
    flags: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not re.fullmatch(r"\w+(\.\w+)*", key):
            raise JobFileError(f"--set takes KEY=VALUE, such as model.max_basis=100; {assignment!r} is not")
        section = flags
        *parents, last = key.split(".")
        for parent in parents:
            section = section.setdefault(parent, {})
        try:
            section[last] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            section[last] = text
    return flags


def parse_bytes(text: str) -> int:
    """Return the bytes of "500MB", "4 GiB" and the like; raise ValueError for anything else."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if not match or match[2] not in _UNITS:
        raise ValueError(f"a size is a number with one of {', '.join(u for u in _UNITS if u)}; {text!r} is not")
    return int(float(match[1]) * _UNITS[match[2]])


def _explain(error: Any) -> str:  # noqa: ANN401
    if error["type"] == "extra_forbidden":
        return "there is no such key"
    if error["type"] == "missing":
        return "is missing"
    return f"{error['msg']} (it is {error['input']!r})"
