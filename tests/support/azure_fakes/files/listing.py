"""Lists of directories, in the XML of the service."""

import base64
from collections.abc import Callable, Iterable, Mapping
from itertools import dropwhile, islice
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, tostring

from support.azure_fakes.files.disk import Properties, entries, properties, timestamp

MOST_RESULTS = 5000


def directory(path: Path, share: str, shown_path: str, query: Mapping[str, str], endpoint: str) -> bytes:
    """A page of a directory."""
    root = Element("EnumerationResults", ServiceEndpoint=endpoint, ShareName=share, DirectoryPath=shown_path)
    SubElement(root, "DirectoryId").text = str(properties(path).file_id)
    items = SubElement(root, "Entries")
    include = {word.lower() for word in query.get("include", "").split(",")}

    def add(entry: Properties) -> None:
        kind = "Directory" if entry.is_directory else "File"
        item = _child(items, kind, FileId=str(entry.file_id), Name=entry.name)
        values = {} if entry.is_directory else {"Content-Length": str(entry.size)}
        if "timestamps" in include:
            written, changed = timestamp(entry.written), timestamp(entry.changed)
            values |= {"CreationTime": timestamp(entry.created), "LastAccessTime": written, "LastWriteTime": written}
            values |= {"ChangeTime": changed, "Last-Modified": entry.last_modified}
        _child(item, "Properties", **values)

    return _page(root, entries(path, query.get("prefix", "")), query, add)


def _child(parent: Element, tag: str, **values: str) -> Element:
    child = SubElement(parent, tag)
    for name, value in values.items():
        SubElement(child, name).text = value
    return child


def _page(
    root: Element, found: Iterable[Properties], query: Mapping[str, str], add: Callable[[Properties], None]
) -> bytes:
    most = min(int(query.get("maxresults", MOST_RESULTS)), MOST_RESULTS)
    first = base64.urlsafe_b64decode(query.get("marker", "")).decode()
    page = list(islice(dropwhile(lambda entry: entry.name < first, found), most + 1))
    for tag in ("Prefix", "Marker", "MaxResults"):
        if tag.lower() in query:
            SubElement(root, tag).text = query[tag.lower()]
    for entry in page[:most]:
        add(entry)
    following = page[most].name if page[most:] else ""
    SubElement(root, "NextMarker").text = base64.urlsafe_b64encode(following.encode()).decode()
    body: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return body
