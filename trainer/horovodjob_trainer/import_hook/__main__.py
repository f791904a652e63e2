"""`python -m horovodjob_trainer.import_hook enable|disable`."""

from horovodjob_trainer.import_hook import main

raise SystemExit(main())
