"""The import contract of what tests share is complete."""

import tomllib

from stages.settings import ROOT

# The package of Azure's SDKs has the name of the folder, in which there is nothing to import.
WITHOUT_MODULES = {"azure"}


def test_what_tests_share_may_import_from_no_folder_of_tests() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = (one for one in contracts if "support" in one.get("source_modules", ()))
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/*") if path.suffix == ".py" or path.is_dir()}
    folders -= {"support", "__pycache__", *WITHOUT_MODULES}
    assert set(contract["forbidden_modules"]) == folders
