"""The files of a directory that a job needs: without those that .gitignore and .hvjignore name."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from horovodjob.client.errors import UsageError

IGNORE_FILES = (".gitignore", ".hvjignore")
# What a program that is sent to another machine does not need there; .hvjignore can name one with a ! before it.
IGNORED_BY_DEFAULT = (".git/", ".venv/", "venv/", "env/", "node_modules/", "__pycache__/", ".ipynb_checkpoints/")
MOST_FILES = 20_000
NAMED_FILES = 5


@dataclass(frozen=True, slots=True)
class CodeFile:
    """A file of the directory: its path below it, with /, and whether it can be executed."""

    path: str
    source: Path
    size: int
    is_executable: bool


def code_files(directory: Path, left_out: set[str] | None = None) -> list[CodeFile]:
    """The files by path; symbolic links are followed. Raises UsageError.

    `left_out` gets the names of directories that are ignored although no file of the user names them.
    """
    if not directory.is_dir():
        raise UsageError(f"`workdir={directory}` is not a directory")
    found: list[CodeFile] = []
    left_out = set() if left_out is None else left_out
    for file in _walk(directory, "", [], (directory.resolve(),), left_out):
        found.append(file)
        if len(found) > MOST_FILES:
            raise UsageError(
                f"{directory.resolve()} has more than {MOST_FILES} files; choose a directory with `workdir=`, or name "
                "what the job does not need in .hvjignore"
            )
    return sorted(found, key=lambda file: file.path)


def too_large(directory: Path, files: Sequence[CodeFile], problem: str) -> UsageError:
    """An error that names the largest files."""
    largest = sorted(files, key=lambda file: -file.size)[:NAMED_FILES]
    names = ", ".join(f"{file.path} ({size_text(file.size)})" for file in largest)
    return UsageError(
        f"{directory.resolve()} {problem}; name what the job does not need in .hvjignore. The largest files: {names}"
    )


def size_text(size: int) -> str:
    """A number of bytes in KiB or MiB."""
    return f"{size / 2**20:.1f} MiB" if size >= 1 << 20 else f"{-(-size // 1024)} KiB"


class _Ignored:
    """The patterns of one file, which hold below its directory."""

    def __init__(self, base: str, lines: Sequence[str], where: str) -> None:
        import pathspec

        self._base = base
        try:
            self._patterns = pathspec.GitIgnoreSpec.from_lines(lines)
        except ValueError as error:
            raise UsageError(f"{where}: {error}") from None

    def decision(self, path: str) -> bool | None:
        """Whether the path is ignored; None if no pattern matches it. A directory ends with /."""
        name = os.fsencode(path.removeprefix(self._base)).decode("utf-8", "replace")
        return self._patterns.check_file(name).include


def _walk(
    directory: Path, prefix: str, ignored: list[_Ignored], parents: tuple[Path, ...], left_out: set[str]
) -> Iterator[CodeFile]:
    for name in IGNORE_FILES:
        if (file := directory / name).is_file():
            ignored = [*ignored, _Ignored(prefix, file.read_text("utf-8", "replace").splitlines(), str(file))]
    for entry in sorted(directory.iterdir()):
        path = f"{prefix}{entry.name}"
        is_directory = entry.is_dir()
        decisions = [each.decision(f"{path}/" if is_directory else path) for each in ignored]
        decided = next((each for each in reversed(decisions) if each is not None), None)
        is_default = is_directory and f"{entry.name}/" in IGNORED_BY_DEFAULT and not _is_package(entry)
        if decided is None and is_default:
            left_out.add(f"{entry.name}/")
            continue
        if decided:
            continue
        if is_directory:
            if (target := entry.resolve()) in parents:
                raise UsageError(f"{entry} is a link to a directory above it; name it in .hvjignore")
            yield from _walk(entry, f"{path}/", ignored, (*parents, target), left_out)
        elif entry.is_file():
            state = entry.stat()
            yield CodeFile(path, entry, state.st_size, bool(state.st_mode & 0o100))
        else:
            what = "a link to a file that does not exist" if entry.is_symlink() else "not a file"
            raise UsageError(f"{entry} is {what}; name it in .hvjignore")


def _is_package(directory: Path) -> bool:
    """Whether a directory such as env is no virtual environment, but a package of Python with this name."""
    return (directory / "__init__.py").is_file() and not (directory / "pyvenv.cfg").exists()
