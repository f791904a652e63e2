"""Checks of requests for data sets that read no data."""

from horovodjob_trainer.data.formats.cifar import LAYOUTS
from horovodjob_trainer.data.request import ANY_SHA256, CACHES, ON_DISK, SHUFFLES, Request
from horovodjob_trainer.errors import UsageError
from horovodjob_trainer.import_string import import_function, is_import_string

NAMES = (*LAYOUTS, "digits", *ON_DISK)


def request_error(request: Request) -> str | None:
    """One sentence if the request is invalid, else None. Imports the module of a function and reads no data."""
    dataset = request.dataset
    is_function = is_import_string(dataset)
    if dataset not in NAMES and not is_function:
        return f"there is no data set '{dataset}'; choose one of {', '.join(NAMES)}, or package.module:function"
    if dataset in ON_DISK and request.path is None:
        return f"--dataset {dataset} needs --data with the path of the data"
    if dataset not in ON_DISK and not is_function and request.path is not None:
        return f"--data belongs to --dataset {', '.join(ON_DISK)} or to your own function, not to {dataset}"
    return _archive_error(request) or _value_error(request) or (_import_error(dataset) if is_function else None)


def _archive_error(request: Request) -> str | None:
    values = {
        "--archive": request.archive,
        "--archive-url": request.archive_url,
        "--archive-sha256": request.archive_sha256,
    }
    options = [option for option, value in values.items() if value is not None]
    if options and request.dataset not in LAYOUTS:
        return f"{options[0]} belongs to --dataset {' or '.join(LAYOUTS)}, not to {request.dataset}"
    if request.archive is not None and request.archive_url is not None:
        return "--archive and --archive-url name two sources; use only one of them"
    if request.archive_sha256 == ANY_SHA256 and request.archive is None:
        return f"--archive-sha256 {ANY_SHA256} needs --archive: a download is always checked"
    return None


def _value_error(request: Request) -> str | None:
    if request.skip_damaged and request.dataset not in ("images", "tfrecord"):
        return f"--skip-damaged belongs to --dataset images or tfrecord, not to {request.dataset}"
    if request.cache not in CACHES:
        return f"there is no cache '{request.cache}'; choose one of {', '.join(CACHES)}"
    if request.crop == "random" and request.dataset not in ("images", "tfrecord"):
        return f"--crop random belongs to --dataset images or tfrecord, not to {request.dataset}"
    if request.validation_crop != 1 and request.dataset not in ("images", "tfrecord"):
        return f"--validation-crop belongs to --dataset images or tfrecord, not to {request.dataset}"
    if not request.exif and request.dataset not in ("images", "tfrecord"):
        return f"--exif belongs to --dataset images or tfrecord, not to {request.dataset}"
    if request.crop == "random" and request.cache == "memory":
        return "--cache memory keeps the central squares of the images; use --cache auto with --crop random"
    if request.shuffle not in SHUFFLES:
        return f"there is no order '{request.shuffle}'; choose one of {', '.join(SHUFFLES)}"
    if request.dataset != "tfrecord" and (request.shuffle == "window" or request.shuffle_window is not None):
        option = "--shuffle window" if request.shuffle == "window" else "--shuffle-window"
        return f"{option} belongs to --dataset tfrecord, not to {request.dataset}"
    if request.shuffle == "exact" and request.shuffle_window is not None:
        return "--shuffle-window has no effect with --shuffle exact; use only one of them"
    if request.image_size < 1:
        return f"images cannot have a height and width of {request.image_size} pixels; use at least 1"
    if not 0 < request.validation_share < 1:
        return f"the validation share {request.validation_share:g} is invalid; use a number between 0 and 1"
    return None


def _import_error(import_string: str) -> str | None:
    try:
        import_function(import_string)
    except UsageError as error:
        return str(error)
    return None
