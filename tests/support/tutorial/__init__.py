"""docs/migration.md, run command by command on the local cluster, with servers that speak Azure's protocols."""
