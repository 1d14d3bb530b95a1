"""The job file: TOML, with flags over environment over file over default; every error at once, each with its key."""

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, cast, get_args

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from ridgestream.jobs.config.cluster_options import ClusterOptions
from ridgestream.jobs.config.method_sections import (
    METHOD_SECTIONS,
    EFVSSection,
    FVSSection,
    ISLSSVMSection,
    OLSSection,
    OROLSSection,
    ShardMergeSelectSection,
    SLSSVMSection,
    SubsetOfRegressorsSection,
    check_method,
)
from ridgestream.jobs.config.section import (
    LABELS,
    Count,
    Grid,
    Names,
    NotNegative,
    Positive,
    Section,
    Text,
    refuse_boolean,
)
from ridgestream.jobs.console.log_format import Log
from ridgestream.jobs.recipes.bundled import read_recipe, recipe_names
from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.files.credentials import WHERE_CREDENTIALS_GO, has_credentials
from ridgestream.stores.files.object_storage import StorageSettings
from ridgestream.stores.files.paths import FileLocation, parse_location
from ridgestream.stores.schema.class_labels import Label

_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


class JobFileError(ValueError):
    """The job file, the environment or the flags do not make a job; the message lists every key that is wrong."""


class SourceSection(Section):
    """Where rows come from, and which column is what."""

    path: Text
    """Folder of Parquet partitions, or one file; a path, or a URL of an object store."""
    target: Text | Names
    """The column to predict, or several to regress on."""
    positive: Label | None = None
    """The class that counts as +1 against all others as −1; without it or classes, the target is a number."""
    classes: Literal["all"] | Annotated[tuple[Label, ...], Field(min_length=1)] | None = None
    """The classes, each learned against the rest: "all" of the first training, or those listed."""
    features: tuple[str, ...] = ()
    """The feature columns; every other column if not given."""
    ignore: tuple[str, ...] = ()
    """Columns that are no features."""
    categorical: tuple[str, ...] = ()
    """Features whose numbers are names; text is always taken so."""
    weight: str | None = None
    """The column of row weights."""
    on_changed: Literal["error", "ignore", "rebuild"] = "error"
    """What becomes of a partition that holds other values than it was taken in with."""
    on_bad: Literal["error", "quarantine"] = "error"
    """What becomes of a new partition that cannot be used."""
    missing: Literal["error", "drop", "impute"] = "error"
    """What becomes of missing values, null and NaN; may change from one run to the next."""
    unseen_categories: Literal["error", "ignore", "extend"] = "error"
    """What becomes of categories that the model has not seen; may change from one run to the next."""

    @field_validator("classes")
    @classmethod
    def _check_classes(cls, value: str | tuple[Label, ...] | None) -> str | tuple[Label, ...] | None:
        if isinstance(value, tuple):
            if len({"number" if type(label) in (int, float) else type(label) for label in value}) > 1:
                raise ValueError("classes are all text, all numbers or all booleans")
            if len(set(value)) < len(value):
                raise ValueError("a class is listed twice")
        return value

    @model_validator(mode="after")
    def _check_target(self) -> Self:
        if self.positive is not None and self.classes is not None:
            raise ValueError("positive learns one class against the rest, classes learns each: give one of the two")
        if len(self.targets) > 1 and (self.positive is not None or self.classes is not None):
            raise ValueError("with positive or classes there is one target; several targets are numbers to regress on")
        return self

    @property
    def targets(self) -> tuple[str, ...]:
        """The columns to predict."""
        return (self.target,) if isinstance(self.target, str) else self.target


class KernelSection(Section):
    """The kernel."""

    name: Literal["rbf", "polynomial", "linear"] = "rbf"
    """Which."""
    gamma: Positive | Grid | None = None
    """Width of rbf, scale of polynomial; 1/n_features if not given. Several: fold errors choose, in batch methods."""
    degree: Count | None = None
    """Of polynomial."""
    coef0: NotNegative | None = None
    """Of polynomial."""

    @model_validator(mode="after")
    def _check_taken(self) -> Self:
        taken = {"rbf": {"gamma"}, "polynomial": {"gamma", "degree", "coef0"}, "linear": set()}[self.name]
        given = {name for name in ("gamma", "degree", "coef0") if getattr(self, name) is not None}
        if given - taken:
            raise ValueError(f"the {self.name} kernel takes no {', '.join(sorted(given - taken))}")
        return self


class ModelSection(Section):
    """What the model is to be."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")] = "model"
    """Its name in the store."""
    method: Literal[
        "online",
        "shard-merge-select",
        "ols",
        "efvs",
        "fvs",
        "orols",
        "isls-svm",
        "subset-of-regressors",
        "ls-svm",
        "sls-svm",
        "kernel-ridge",
    ] = "online"
    """The single-pass online LS-SVM, or a batch method."""
    kernel: KernelSection = KernelSection()
    """The kernel."""
    regularization: Positive | Grid = 1e-5
    """λ per row. Several: fold errors choose, in batch methods."""
    max_basis: Count | Literal["unlimited"] = 500
    """The largest dictionary; "unlimited": as far as memory goes, or as many as there are to choose from."""
    selection: Literal["supervised", "novelty", "fixed"] = "supervised"
    """Which rows enter the dictionary."""
    dictionary: Text | None = None
    """With fixed: the dictionary's rows, a Parquet file or a folder of them with the feature columns of the source."""
    random_basis: Count | None = None
    """With fixed: how many rows are drawn at the first training to be the dictionary."""
    random_seed: Annotated[int, Field(ge=0)] = 0
    """What they are drawn with."""
    novelty_threshold: NotNegative = 1e-2
    """TOL1."""
    usefulness_threshold: NotNegative = 1e-4
    """TOL2, in squared target units."""
    scaling_rows: Count | Literal["all"] = 10_000
    """The first partitions with so many rows fix the standardization; "all": those there at the first training."""
    refit: bool = False
    """Whether to fit the coefficients to all learned rows by one more pass; may change from one night to the next."""
    guard: NotNegative | None = None
    """By how much the error on the held-out rows may rise before the model of an earlier night is served instead."""
    folds: Count = 5
    """Batch methods: how many folds judge what is compared; 1 compares nothing."""
    reselect: Literal["never", "always", "on drift"] = "never"
    """Batch methods: whether a night with new partitions chooses the dictionary anew."""
    drift_margin: NotNegative = 0.1
    """With "on drift": by which share the error on new rows must exceed that on the rows chosen from."""
    ols: OLSSection | None = None
    """Of method ols."""
    efvs: EFVSSection | None = None
    """Of method efvs, and of isls-svm that starts from it."""
    fvs: FVSSection | None = None
    """Of method fvs."""
    orols: OROLSSection | None = None
    """Of method orols."""
    isls_svm: ISLSSVMSection | None = None
    """Of method isls-svm."""
    subset_of_regressors: SubsetOfRegressorsSection | None = None
    """Of method subset-of-regressors."""
    sls_svm: SLSSVMSection | None = None
    """Of method sls-svm."""
    shard_merge_select: ShardMergeSelectSection | None = None
    """Of method shard-merge-select."""

    @property
    def regularizations(self) -> tuple[float, ...]:
        """Every λ per row that is to be tried."""
        return self.regularization if isinstance(self.regularization, tuple) else (self.regularization,)

    def section(self, name: str) -> dict[str, Any]:
        """Return the keys of a method's section, with its defaults where it is not given."""
        given = getattr(self, name)
        return cast("dict[str, Any]", (METHOD_SECTIONS[name]() if given is None else given).model_dump())

    @model_validator(mode="after")
    def _check_method(self) -> Self:
        check_method(self.method, self.model_fields_set - {"name", "method", "kernel", "scaling_rows", "guard"})
        single = self.method in ("online", "ols", "orols", "efvs", "fvs", "shard-merge-select")
        if single and isinstance(self.kernel.gamma, tuple):
            raise ValueError(f"method {self.method} takes a single kernel.gamma, not a list")
        if self.method in ("online", "ols", "efvs", "fvs") and isinstance(self.regularization, tuple):
            raise ValueError(f"method {self.method} takes a single regularization, not a list")
        compared = len(self.regularizations) > 1 or isinstance(self.kernel.gamma, tuple)
        if self.isls_svm and self.max_basis != "unlimited" and self.isls_svm.smallest > self.max_basis:
            raise ValueError(f"isls_svm.smallest must be at most max_basis, {self.max_basis}")
        starts = [s.start for s in (self.isls_svm, self.subset_of_regressors) if s]
        if self.method != "online" and ("given" in starts) != (self.dictionary is not None):
            raise ValueError('start = "given" and model.dictionary, a Parquet file of its rows, go together')
        if compared and self.folds < 2:
            raise ValueError("several regularizations or gammas are compared by folds: folds must be 2 or more")
        return self

    @model_validator(mode="after")
    def _check_selection(self) -> Self:
        if self.method != "online":
            return self
        given = {"dictionary", "random_basis", "random_seed"}
        untaken = {
            "supervised": given,
            "novelty": given | {"usefulness_threshold"},
            "fixed": {"max_basis", "novelty_threshold", "usefulness_threshold"},
        }[self.selection]
        if untaken & self.model_fields_set:
            raise ValueError(
                f"selection {self.selection} takes no {', '.join(sorted(untaken & self.model_fields_set))}"
            )
        if self.selection == "fixed" and (self.dictionary is None) == (self.random_basis is None):
            raise ValueError(
                "selection fixed takes one of dictionary, a Parquet file, and random_basis, a number of rows"
            )
        if self.dictionary is not None and "random_seed" in self.model_fields_set:
            raise ValueError("random_seed goes with random_basis, not with a dictionary")
        return self


class EvaluateSection(Section):
    """Held-out rows."""

    path: Text
    """Folder of Parquet partitions with the target, or one file; a path, or a URL of an object store."""


class PredictSection(Section):
    """Rows to predict."""

    path: Text | None = None
    """Folder of Parquet partitions, or one file; INPUT of the command goes before it."""
    output: Text | None = None
    """Folder for the predictions, one file a partition; OUTPUT of the command goes before it."""
    keep: tuple[str, ...] = ()
    """Columns of the input that the output repeats."""


class StorageSection(Section):
    """Object stores: where they are and how they are asked, for the store, partitions and predictions alike.

    Credentials are no part of it: each process takes them from its environment.
    """

    endpoint_url: Text | None = None
    """The URL of an S3-protocol server; AWS_ENDPOINT_URL if not given, or else Amazon's."""
    region: Text | None = None
    """The region of S3; AWS_REGION if not given, or that of the profile."""
    anonymous: bool = False
    """Whether to ask without credentials, as public buckets let."""
    account: Text | None = None
    """The account of Azure; AZURE_STORAGE_ACCOUNT_NAME if not given."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_secrets(cls, keys: object) -> object:
        """Refuse credentials by name, before a message repeats a value."""
        if isinstance(keys, dict):
            named = [key for key in keys if re.search("key|secret|token|password|credential", str(key).lower())]
            if named:
                raise ValueError(
                    f"{', '.join(named)} would be a secret in a job file; each process takes its credentials from its "
                    "environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS, AZURE_*"
                )
        return keys

    @model_validator(mode="after")
    def _check_endpoint(self) -> Self:
        try:
            StorageSettings(self.endpoint_url).endpoint  # noqa: B018
        except StoreError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def settings(self) -> StorageSettings:
        """What the stores take of it."""
        return StorageSettings(self.endpoint_url, self.region, self.anonymous, self.account)


class _Environment(EnvSettingsSource):
    """The environment. A label is written as in the file: 2 is a number, "2" is text, and so is Spruce.

    Pydantic's own source passes over names that are no keys; here they are found, so that they can be refused.
    """

    def __call__(self) -> dict[str, Any]:
        found = super().__call__()
        prefix = str(self.env_prefix).lower()
        names = (name.lower() for name in os.environ if name.lower().startswith(prefix))
        for key in {name.removeprefix(prefix).split("__")[0] for name in names} - set(self.settings_cls.model_fields):
            found[key] = ""
        source = found.get("source")
        if isinstance(source, dict):
            source |= {key: parse_value(source[key]) for key in LABELS if isinstance(source.get(key), str)}
            target = next((v for n, v in os.environ.items() if n.lower() == f"{prefix}source__target"), "[")
            if not target.startswith("["):  # a name as it is, which Pydantic's source has read as JSON
                source["target"] = target
        return found


class Job(BaseSettings):
    """A job, validated; paths are as written and relative to the folder of its file."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, env_prefix="RIDGESTREAM_", env_nested_delimiter="__")

    recipe: ClassVar[dict[str, Any]] = {}
    """The settings of a bundled recipe, if the job is one that was named in place of a file."""

    store: Text
    """Where the store is: a local folder, or a URL of an object store."""
    source: SourceSection
    """Where rows come from."""
    model: ModelSection = ModelSection()
    """What the model is to be."""
    evaluate: EvaluateSection | None = None
    """Held-out rows."""
    predict: PredictSection | None = None
    """Rows to predict."""
    report: Text | None = None
    """Folder or URL for the reports of runs, or none; STORE-reports if not given."""
    storage: StorageSection = StorageSection()
    """Object stores: where they are and how they are asked."""
    memory_limit: str | int | None = None
    """What a process may use, such as "4GB"; what is free if not given."""
    cluster: str = "none"
    """none, local, local:N, a scheduler's address, or file: and the path of a scheduler's file."""
    log: Log = "auto"
    """How the long commands show their work: bars on a terminal and text elsewhere, text, or lines of JSON."""
    cluster_seconds: Positive = 30.0
    """How long to wait for the scheduler and for a first worker, and for another one where all are lost."""

    cluster_options: ClusterOptions = ClusterOptions()
    """What is asked of a cluster."""

    _refuse_booleans = field_validator("memory_limit", "cluster_seconds", mode="before")(refuse_boolean)

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
        file, recipe = TomlConfigSettingsSource(settings_cls), InitSettingsSource(settings_cls, cls.recipe)
        return init_settings, _Environment(settings_cls), file, recipe

    @model_validator(mode="after")
    def _check_guard(self) -> Self:
        if self.model.guard is not None and self.evaluate is None:
            raise ValueError("model.guard compares errors on held-out rows: it needs evaluate.path")
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

    def place(self, text: str, base: Path | None = None) -> FileLocation:
        """Return the place that a text of the job file names: a URL, or a path relative to the folder of the file.

        A text that comes from elsewhere is relative to `base`. Raises JobFileError for a scheme that is not known and
        for credentials in a URL.
        """
        try:
            return parse_location(text, base or self.base, "the place", self.storage.settings)
        except StoreError as error:
            raise JobFileError(str(error)) from error

    @property
    def base(self) -> Path:
        """The folder of the job file; the working directory for a bundled recipe."""
        file = self.model_config.get("toml_file")
        return Path(str(file)).resolve().parent if file else Path.cwd()


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
        is_file = path.is_file()
    except OSError as error:
        raise JobFileError(f"the job {path} cannot be read: {error.strerror}") from error
    if not is_file and str(path) not in recipe_names():
        raise JobFileError(
            f"there is no job file {path}, and no bundled recipe of that name (there are {', '.join(recipe_names())}); "
            "a store is named in a job file, or by --store beside one"
        )

    class JobFromFile(Job):
        model_config = SettingsConfigDict(toml_file=path.absolute() if is_file else None)
        recipe = {} if is_file else read_recipe(str(path))

    try:
        return JobFromFile(**flags)
    except ValidationError as error:
        raise JobFileError(f"the job {path} cannot be used:\n{_list_errors(error)}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, SettingsError) as error:
        raise JobFileError(f"the job {path} cannot be read: {error}") from error
    except OSError as error:
        raise JobFileError(f"the job {path} cannot be read: {error.strerror}") from error


def parse_flags(assignments: list[str]) -> dict[str, Any]:
    """Turn `model.max_basis=100` and the like into nested settings; values are TOML, or text where that fails.

    `source.positive=` with nothing behind it takes back what the environment or the file says.
    """
    flags: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not re.fullmatch(r"\w+(\.\w+)*", key):
            raise JobFileError(f"--set takes KEY=VALUE, such as model.max_basis=100; {assignment!r} is not")
        section = flags
        *parents, last = key.split(".")
        for parent in parents:
            section = section.setdefault(parent, {})
            if not isinstance(section, dict):
                raise JobFileError(f"--set {assignment}: another --set gives {parent} a value, so it has no keys")
        section[last] = parse_value(text) if text else None
    return flags


def parse_value(text: str) -> Any:  # noqa: ANN401
    """Return what the text is as the value of a TOML key; the text itself if it is none."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return parsed["value"] if len(parsed) == 1 else text


def parse_bytes(text: str) -> int:
    """Return the bytes of "500MB", "4 GiB" and the like; raise ValueError for anything else."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if not match or match[2] not in _UNITS:
        raise ValueError(f"a size is a number with one of {', '.join(u for u in _UNITS if u)}; {text!r} is not")
    return int(float(match[1]) * _UNITS[match[2]])


def _list_errors(error: ValidationError) -> str:
    """Return one line a key; where a key may be of several types, with what each of them found."""
    found: dict[str, list[str]] = {}
    for e in error.errors():
        found.setdefault(_key(e["loc"]), []).append(_explain(e))
    return "\n".join(f"  {f'{key}: ' if key else ''}{'; '.join(dict.fromkeys(said))}" for key, said in found.items())


def _key(location: tuple[int | str, ...]) -> str:
    """Return the key as the job file has it; Pydantic goes on with the type that it tried, or a position in a list."""
    parts: list[str] = []
    section: type[BaseModel] | None = Job
    for part in map(str, location):
        if section is None:
            break
        parts.append(part)
        kind = section.model_fields[part].annotation if part in section.model_fields else None
        members = (kind, *get_args(kind))
        section = next((m for m in members if isinstance(m, type) and issubclass(m, BaseModel)), None)
    return ".".join(parts)


def _explain(error: Any) -> str:  # noqa: ANN401
    if error["type"] == "extra_forbidden":
        return "there is no such key"
    if error["type"] == "missing":
        return "is missing"
    message = str(error["msg"]).removeprefix("Value error, ")
    return message if isinstance(error["input"], dict) else f"{message} (it is {error['input']!r})"
