"""The former name of `import_hook`, for environments in which a line of a .pth file imports it."""

from __future__ import annotations

from horovodjob_trainer.import_hook import install, main, remove

__all__ = ["install", "main", "remove"]

if __name__ == "__main__":
    raise SystemExit(main())
