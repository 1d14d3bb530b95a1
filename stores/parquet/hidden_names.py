"""Names that are hidden: files and folders that writers keep beside the rows, as Spark and Hive have them."""


def is_hidden(name: str) -> bool:
    """Return whether a file's name is hidden: it begins with a dot or an underscore."""
    return name.startswith((".", "_"))


def is_hidden_folder(name: str) -> bool:
    """Return whether a folder is hidden; `_key=value` is not, since it holds the rows of a value."""
    return is_hidden(name) and not (name.startswith("_") and "=" in name)
