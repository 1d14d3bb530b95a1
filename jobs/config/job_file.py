"""The job file: TOML, with flags over environment over file over default; every error at once, each with its key."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from ridgestream.jobs.config.cluster_options import CLUSTER_SECONDS, ClusterOptions
from ridgestream.jobs.config.key_errors import list_errors
from ridgestream.jobs.config.model_section import ModelSection, policy_settings
from ridgestream.jobs.config.section import LABELS, Positive, Text, describe_keys, refuse_boolean
from ridgestream.jobs.config.sections import (
    DriftSection,
    EvaluateSection,
    PredictSection,
    SourceSection,
    StorageSection,
)
from ridgestream.jobs.config.toml_file import read_toml
from ridgestream.jobs.config.values import JobFileError, parse_bytes, parse_value
from ridgestream.jobs.console.log_format import Log
from ridgestream.jobs.recipes.bundled import read_recipe, recipe_names
from ridgestream.pipeline.models.model_record import LSTD
from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.files.credentials import WHERE_CREDENTIALS_GO, has_credentials
from ridgestream.stores.files.paths import FileLocation, parse_location


class _Environment(EnvSettingsSource):
    """The environment. A label is written as in the file: 2 is a number, "2" is text, and so is Spruce.

    Pydantic's own source ignores names that are not keys; here they are included, so that they can be refused.
    """

    def __call__(self) -> dict[str, Any]:
        values = super().__call__()
        prefix = str(self.env_prefix).lower()
        names = (name.lower() for name in os.environ if name.lower().startswith(prefix))
        for key in {name.removeprefix(prefix).split("__")[0] for name in names} - set(self.settings_cls.model_fields):
            values[key] = ""
        source = values.get("source")
        if isinstance(source, dict):
            source |= {key: parse_value(source[key]) for key in LABELS if isinstance(source.get(key), str)}
            target = next((v for n, v in os.environ.items() if n.lower() == f"{prefix}source__target"), "[")
            if not target.startswith("["):  # a name as it is, which Pydantic's source has read as JSON
                source["target"] = target
        return values


class Job(BaseSettings):
    """A job, validated; paths are as written and relative to the folder of its file."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        env_prefix="RIDGESTREAM_",
        env_nested_delimiter="__",
        json_schema_extra=describe_keys,
    )

    content: ClassVar[dict[str, Any]] = {}
    """The settings of the job file, or of the bundled recipe that was named in its place."""
    file: ClassVar[Path | None] = None
    """The job file; None for a bundled recipe."""

    store: Text
    """Where the store is: a local folder, or a URL of an object store."""
    source: SourceSection
    """Where rows come from."""
    model: ModelSection = ModelSection()
    """The model to train."""
    evaluate: EvaluateSection | None = None
    """Held-out rows."""
    predict: PredictSection | None = None
    """Rows to predict."""
    drift: DriftSection = DriftSection()
    """Which columns are watched."""
    report: Text | None = None
    """Folder or URL for the reports of runs, or none; STORE-reports if not given."""
    storage: StorageSection = StorageSection()
    """Object stores: endpoint, region and account."""
    memory_limit: str | int | None = None
    """Memory that a process may use, such as "4GB"; the free memory if not given."""
    cluster: str = "none"
    """none, local, local:N, a scheduler's address, or file: and the path of a scheduler's file."""
    log: Log = "auto"
    """How the long commands show their work: bars on a terminal and text elsewhere, text, or lines of JSON."""
    cluster_seconds: Positive = CLUSTER_SECONDS
    """How long to wait for the scheduler and for a first worker, and for another one where all are lost."""

    stall_seconds: Positive = 600.0
    """How long nothing may move, no row, line, request or task, before the command ends with exit code 4."""
    cluster_options: ClusterOptions = ClusterOptions()
    """How a cluster is used."""

    _refuse_booleans = field_validator("memory_limit", "cluster_seconds", "stall_seconds", mode="before")(
        refuse_boolean
    )

    @field_validator("memory_limit")
    @classmethod
    def _parse_bytes(cls, value: str | int | None) -> int | None:
        count = parse_bytes(value) if isinstance(value, str) else value
        if count is not None and count <= 0:
            raise ValueError("a size must be above zero")
        return count

    @field_validator("cluster")
    @classmethod
    def _check_cluster(cls, value: str) -> str:
        if value in ("none", "local") or re.fullmatch(r"local:0*[1-9]\d*", value):
            return value
        if value.startswith("local:") or ":" not in value or value == "file:":
            raise ValueError(
                "a cluster is none, local, local:N with N workers, a scheduler's address (HOST:PORT, tcp://HOST:PORT, "
                "tls://HOST:PORT), or file:PATH of a scheduler's file"
            )
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Put flags first, then the environment, then the file."""
        return init_settings, _Environment(settings_cls), InitSettingsSource(settings_cls, cls.content)

    @model_validator(mode="after")
    def _check_guard(self) -> Self:
        if self.model.guard is not None and self.evaluate is None:
            raise ValueError("model.guard compares errors on held-out rows: it needs evaluate.path")
        return self

    @model_validator(mode="after")
    def _check_transitions(self) -> Self:
        is_policy = self.model.method == LSTD
        if is_policy and self.source.next is None:
            raise ValueError("method lstd learns transitions: it needs source.next, the columns after a step")
        if is_policy and policy_settings(self.model).discount == 1 and self.source.done is None:
            raise ValueError("with discount 1 episodes must end: give source.done, or a model.lstd.discount below 1")
        if self.evaluate is not None and self.evaluate.values is not None and not is_policy:
            raise ValueError("evaluate.values are those of method lstd; other methods predict source.target")
        if self.evaluate is not None and self.evaluate.values is not None and len(self.source.targets) > 1:
            raise ValueError("evaluate.values is the column of one reward's values, and source.target has several")
        return self

    @model_validator(mode="after")
    def _check_credentials(self) -> Self:
        keys = [key for key, text in _texts(self.model_dump()) if "://" in text and has_credentials(text)]
        if keys:
            raise ValueError(f"{', '.join(keys)} has credentials in its URL, {WHERE_CREDENTIALS_GO}")
        return self

    def path(self, text: str) -> Path:
        """Return a local path of the job file as it is meant: relative to the folder of the file."""
        return Path(os.path.normpath(self.base / Path(text).expanduser()))

    def location(self, text: str, base: Path | None = None) -> FileLocation:
        """Return the location that a text of the job file names: a URL, or a path relative to the folder of the file.

        A path given elsewhere is relative to `base`. Raises JobFileError for an unknown scheme and for credentials in
        a URL.
        """
        try:
            return parse_location(text, base or self.base, "the location", self.storage.settings)
        except StoreError as error:
            raise JobFileError(str(error)) from error

    @property
    def base(self) -> Path:
        """The folder of the job file; the working directory for a bundled recipe."""
        return Path.cwd() if self.file is None else self.file.resolve().parent


def _texts(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the keys of texts, as the job file has them, and the texts."""
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _texts(value, f"{prefix}{key}.")
        elif isinstance(value, str):
            yield f"{prefix}{key}", value


def read_job(path: Path, flags: dict[str, Any]) -> Job:
    """Read a job file, or the bundled recipe of that name where there is no such file.

    `flags` are nested like the file and go before it and the environment.

    Raises JobFileError naming the file and every key that is missing, unknown or wrong.
    """
    try:
        is_file = path.exists() and not path.is_dir()
    except OSError as error:
        raise JobFileError(f"the job {path} cannot be read: {error.strerror}") from error
    if not is_file and str(path) not in recipe_names():
        raise JobFileError(
            f"there is no job file {path}, and no bundled recipe of that name (there are {', '.join(recipe_names())}); "
            "a store is named in a job file, or by --store in addition to one"
        )

    content = read_toml(path) if is_file else read_recipe(str(path))
    return make_job(content, flags, f"the job {path}", path.absolute() if is_file else None)


def make_job(settings: dict[str, Any], flags: dict[str, Any], label: str, path: Path | None = None) -> Job:
    """Return the job with the settings of its file, before which `flags` and the environment go.

    Raises JobFileError, which calls the job `label`, naming every key that is missing, unknown or wrong.
    """

    class JobFromFile(Job):
        file = path
        content = settings

    try:
        return JobFromFile(**flags)
    except RecursionError as error:
        raise JobFileError(f"{label} cannot be used: its values are nested too deeply") from error
    except ValidationError as error:
        raise JobFileError(f"{label} cannot be used:\n{list_errors(error, Job)}") from error
    except SettingsError as error:
        raise JobFileError(f"{label} cannot be read: {error}") from error
