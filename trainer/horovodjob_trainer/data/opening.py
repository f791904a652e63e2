"""From a request to the data set."""

from horovodjob_trainer.data.cifar import LAYOUTS, cifar
from horovodjob_trainer.data.request import Request, problem
from horovodjob_trainer.data.source import Dataset
from horovodjob_trainer.errors import DataError


def opened(request: Request) -> Dataset:
    """The data set; downloads it where the node has none, and reads it into memory if it fits and is to be kept.

    Raises DataError with one sentence that names the file and the remedy.
    """
    if (sentence := problem(request)) is not None:
        raise DataError(sentence)
    if request.dataset in LAYOUTS:
        return cifar(
            LAYOUTS[request.dataset],
            archive=request.archive,
            url=request.archive_url,
            sha256=request.archive_sha256,
            directory=request.data_directory,
        )
    if request.dataset == "digits":
        from horovodjob_trainer.data.digits import digits

        return digits()
    raise DataError(f"{request.dataset} cannot be read yet")
