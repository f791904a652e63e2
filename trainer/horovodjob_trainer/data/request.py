"""Which data a run asks for, and what can be said about that before anything is read."""

from dataclasses import dataclass
from pathlib import Path

from horovodjob_trainer import import_string
from horovodjob_trainer.data.cifar import ANY_SHA256, LAYOUTS
from horovodjob_trainer.errors import UsageError

ON_DISK = ("images", "tfrecord", "npz")
NAMES = (*LAYOUTS, "digits", *ON_DISK)
CACHES = ("auto", "memory", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A data set as a run asks for it. Pictures from files get `image_size` pixels in height and width."""

    dataset: str
    path: Path | None = None
    archive: Path | None = None
    archive_url: str | None = None
    archive_sha256: str | None = None
    data_directory: Path = Path("~/.cache/horovodjob")
    image_size: int = 64
    validation_share: float = 0.1
    cache: str = "auto"
    seed: int = 1
    threads: int = 2


def problem(request: Request) -> str | None:
    """One sentence about a request that no data could satisfy; reads nothing but the user's own module."""
    dataset = request.dataset
    own = import_string.is_reference(dataset)
    if dataset not in NAMES and not own:
        return f"there is no data set '{dataset}'; choose one of {', '.join(NAMES)}, or package.module:function"
    if dataset in ON_DISK and request.path is None:
        return f"--dataset {dataset} needs --data with the place of the data"
    if dataset not in ON_DISK and not own and request.path is not None:
        return f"--data belongs to --dataset {', '.join(ON_DISK)} or a function of your own, not to {dataset}"
    return _archive_problem(request) or _value_problem(request) or (_import_problem(dataset) if own else None)


def _archive_problem(request: Request) -> str | None:
    given = {
        "--archive": request.archive,
        "--archive-url": request.archive_url,
        "--archive-sha256": request.archive_sha256,
    }
    options = [option for option, value in given.items() if value is not None]
    if options and request.dataset not in LAYOUTS:
        return f"{options[0]} belongs to --dataset {' or '.join(LAYOUTS)}, not to {request.dataset}"
    if request.archive is not None and request.archive_url is not None:
        return "--archive and --archive-url name two sources; give one of them"
    if request.archive_sha256 == ANY_SHA256 and request.archive is None:
        return f"--archive-sha256 {ANY_SHA256} needs --archive: a download is always checked"
    return None


def _value_problem(request: Request) -> str | None:
    if request.cache not in CACHES:
        return f"there is no cache '{request.cache}'; choose one of {', '.join(CACHES)}"
    if request.image_size < 1:
        return f"pictures cannot have {request.image_size} pixels in height and width; give at least 1"
    if not 0 < request.validation_share < 1:
        return f"a share of {request.validation_share:g} of the data cannot be kept for the test; give one inside 0..1"
    return None


def _import_problem(reference: str) -> str | None:
    try:
        import_string.function(reference)
    except UsageError as error:
        return str(error)
    return None
