"""Reads HDF5 files that may come from anybody: nothing outside the file is opened, and no filter is loaded."""
from __future__ import annotations

import json
import os
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Tuple

from .errors import ArchiveError, missing_package

if TYPE_CHECKING:
    import h5py

MOST_BYTES = 512 << 20
_DEFLATE, _SHUFFLE, _FLETCHER32 = 1, 2, 3


def modules() -> Tuple[Any, Any]:
    """Returns the modules h5py and pandas; raises MissingPackageError."""
    try:
        import h5py
    except ImportError:
        raise missing_package("h5py", "reading an archive", "frames") from None
    try:
        import pandas
    except ImportError:
        raise missing_package("pandas", "a table of an archive", "frames") from None
    return h5py, pandas


class Input:
    """An open file of HDF5 and its name in messages."""

    def __init__(self, file: "h5py.File", path: str) -> None:
        self.file = file
        self.path = path

    def names(self, group: str) -> List[str]:
        """Returns the names in a group; empty if there is no such group."""
        found = self._object(group, wanted=False)
        return [] if found is None else list(found)

    def has(self, name: str) -> bool:
        """Returns true if the file has the object."""
        return self._object(name, wanted=False) is not None

    def attribute(self, name: str) -> Any:
        """Returns a number or a text of the file's root; None if it is not there."""
        value = self.file.attrs.get(name)
        return value.decode(errors="replace") if isinstance(value, bytes) else value

    def text(self, name: str) -> str:
        """Returns a text; empty if it is not there or not written yet."""
        found = self._object(name, wanted=False)
        if found is None:
            return ""
        value = self._checked(found, name)[()]
        if not isinstance(value, bytes):
            raise ArchiveError(f"{self.path}: /{name} is no text")
        return value.decode(errors="replace")

    def json(self, name: str) -> Any:
        """Returns the content of a text in JSON; None if it is empty."""
        return self._parsed(self.text(name), name)

    def packed_json(self, name: str) -> Any:
        """Returns the content of JSON that is stored as bytes; None if it is empty."""
        found = self._object(name, wanted=False)
        if found is None:
            return None
        return self._parsed(bytes(self._checked(found, name)[:]).decode(errors="replace"), name)

    def columns(self, group: str) -> Tuple[Dict[str, Any], Dict[str, str]]:
        """Returns the columns of a group, cut to the shortest, and their units."""
        values: Dict[str, Any] = {}
        units: Dict[str, str] = {}
        for name in self.names(group):
            dataset = self._checked(self._object(f"{group}/{name}"), f"{group}/{name}")
            unit = dataset.attrs.get("units", "")
            units[name] = unit.decode() if isinstance(unit, bytes) else str(unit)
            values[name] = dataset[:]
        rows = min((len(column) for column in values.values()), default=0)
        return {name: _texts(column[:rows]) for name, column in values.items()}, units

    def link(self, name: str) -> str:
        """Returns the name of the file beside this one that a comparison's link names."""
        link = self.file.get(name, getlink=True)
        target = getattr(link, "filename", None)
        if target is None or os.path.basename(target) != target or getattr(link, "path", "") not in ("/", ""):
            raise ArchiveError(f"{self.path}: /{name} does not name an archive of the same folder")
        return os.path.join(os.path.dirname(self.path), target)

    def array(self, name: str) -> Any:
        """Returns a dataset as an array of numpy."""
        return self._checked(self._object(name), name)[:]

    def _object(self, name: str, wanted: bool = True) -> Any:
        import h5py
        place: Any = self.file
        for part in name.split("/"):
            link = place.get(part, getlink=True) if isinstance(place, h5py.Group) else None
            if link is None:
                if wanted:
                    raise ArchiveError(f"{self.path} has no /{name}")
                return None
            if not isinstance(link, h5py.HardLink):
                raise ArchiveError(f"{self.path}: /{name} is a link to elsewhere, which is not followed")
            place = place[part]
        return place

    def _checked(self, dataset: Any, name: str) -> Any:
        """Refuses what would open other files, load code, or take more memory than an archive can need."""
        import h5py
        if not isinstance(dataset, h5py.Dataset):
            raise ArchiveError(f"{self.path}: /{name} is no dataset")
        if dataset.is_virtual or dataset.external:
            raise ArchiveError(f"{self.path}: the data of /{name} lie in another file, which is not read")
        settings = dataset.id.get_create_plist()
        filters = {settings.get_filter(index)[0] for index in range(settings.get_nfilters())}
        if not filters <= {_DEFLATE, _SHUFFLE, _FLETCHER32}:
            raise ArchiveError(f"{self.path}: /{name} has a filter that archives do not have")
        if dataset.size * dataset.dtype.itemsize > MOST_BYTES:
            raise ArchiveError(f"{self.path}: /{name} claims more than {MOST_BYTES} bytes")
        return dataset

    def _parsed(self, text: str, name: str) -> Any:
        if not text:
            return None
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ArchiveError(f"{self.path}: /{name} is no JSON: {error}") from None


def _texts(column: Any) -> Any:
    """Texts of bytes as texts; other columns as they are."""
    if column.dtype.kind in "SO":
        return [value.decode(errors="replace") if isinstance(value, bytes) else str(value) for value in column]
    return column


@contextmanager
def opened(path: str) -> Iterator[Input]:
    """Opens a file for reading, also one that a run still writes. Raises ArchiveError."""
    h5py, _ = modules()
    try:
        with h5py.File(path, "r", locking=False) as file:
            yield Input(file, path)
    except FileNotFoundError:
        raise ArchiveError(f"{path}: there is no such file") from None
    except (OSError, RuntimeError, zlib.error) as error:
        raise ArchiveError(f"{path} cannot be read as HDF5: {error}. If its run goes on, try once more: a value may "
                           "have been written at that moment") from error
