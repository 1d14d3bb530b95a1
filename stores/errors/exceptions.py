"""The exceptions of the stores; each is also the built-in exception that fits it."""


class StoreError(OSError):
    """The store at a location cannot be opened, read or written; the message names it and what to do."""


class SchemaMismatch(StoreError):
    """A job declares other columns than the store's schema has; the message names the key and both values."""


class ServerSilent(StoreError):
    """The server of an object store cannot be reached or does not respond."""


class StoreLocked(StoreError):
    """Another writer holds the store; the message names it."""


class NewerFormat(StoreError):
    """The store or a model in it was written by a newer release; the message names both versions."""


class PartitionError(ValueError):
    """A Parquet partition cannot be used; the message names file, column and value, and what to do."""


class ModelError(LookupError):
    """A model is missing, or is not what the job says it is; the message names it and what to do."""
