"""Prints the attributes of a script and then fails, with the same output under Python and horovodjob_trainer.compat."""

import json
import os
import sys

named = vars(sys.modules["__main__"]) is globals()
attributes = {name: str(value) for name, value in globals().items() if name.startswith("__") and name != "__loader__"}
print(json.dumps([sys.argv, sys.path[0], os.getcwd(), named, type(__builtins__).__name__, attributes], sort_keys=True))


def fails(number: int) -> float:
    return 1 / number


try:
    fails(0)
except ZeroDivisionError as error:
    raise ValueError("the script's own error") from error
