"""Reports of a comparison, from its record of schema "skipway.compare/1" (`report.json`); needs no torch."""
