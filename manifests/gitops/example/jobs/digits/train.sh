#!/bin/sh
exec python -m horovodjob_trainer --dataset digits --dir "/data/$HOROVODJOB_NAME"
