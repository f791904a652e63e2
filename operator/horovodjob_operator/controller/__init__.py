"""From events to reconciliations: one job at a time, on its newest state."""
