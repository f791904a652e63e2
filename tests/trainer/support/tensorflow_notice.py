"""The notice of TensorFlow 2.21 about oneDNN, which it writes at any TF_CPP_MIN_LOG_LEVEL while its libraries load."""

import re

NOTICE = re.compile(
    r"^(WARNING: All log messages before absl::InitializeLog\(\) is called|I0000 .* oneDNN custom operations).*\n",
    re.MULTILINE,
)


def without_notice(output: str) -> str:
    """The output of a program without the notice."""
    return NOTICE.sub("", output)
