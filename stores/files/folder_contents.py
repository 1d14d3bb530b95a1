"""The files of a folder on a local disk or in an object store: listed, read whole and deleted."""

from pathlib import Path

from ridgestream.stores.files.paths import FileLocation, list_objects, object_errors


def list_files(folder: FileLocation) -> list[FileLocation]:
    """Return the files that are directly in a folder, sorted by name; none if there is no such folder.

    Raises OSError or StoreError if it cannot be listed.
    """
    if isinstance(folder, Path):
        if not folder.is_dir():
            return []
        return [*sorted(path for path in folder.iterdir() if path.is_file())]
    return sorted((path for name, path, _ in list_objects(folder) if "/" not in name), key=str)


def read_file(file: FileLocation) -> bytes:
    """Return the contents of a file; raises OSError or StoreError if it cannot be read."""
    if isinstance(file, Path):
        return file.read_bytes()
    with object_errors(file, "read"), file.files.open_input_file(file.path) as source:
        return bytes(source.read())


def delete_file(file: FileLocation) -> None:
    """Delete a file; raises OSError or StoreError if it cannot be deleted."""
    if isinstance(file, Path):
        file.unlink(missing_ok=True)
        return
    with object_errors(file, "deleted"):
        file.files.delete_file(file.path)
