"""Rules between fields of a spec, in CEL: the API server refuses a job that violates one of them."""


def _manager(spec: str) -> str:
    """A CEL expression for the controller of a job, as a list of one name or none."""
    return (
        f"(has({spec}.managedBy) ? [{spec}.managedBy] : "
        f"has({spec}.runPolicy.managedBy) ? [{spec}.runPolicy.managedBy] : [])"
    )


SPEC_RULES = (
    (
        f"{_manager('self')} == {_manager('oldSelf')}",
        "managedBy cannot change: delete the job and create it again",
    ),
    (
        "!has(self.managedBy) || !has(self.runPolicy.managedBy) || self.managedBy == self.runPolicy.managedBy",
        "managedBy and runPolicy.managedBy differ: remove runPolicy.managedBy",
    ),
    (
        "[has(self.script), has(self.command), has(self.launcherCommand)].filter(is, is).size() == 1",
        "set exactly one of script, command and launcherCommand",
    ),
    (
        "!has(self.elastic) || self.elastic.minReplicas <= self.worker.replicas && "
        "self.worker.replicas <= self.elastic.maxReplicas",
        "worker.replicas must be from elastic.minReplicas to elastic.maxReplicas",
    ),
    (
        "!has(self.elastic) || !has(self.launcherCommand)",
        "elastic needs script or command: Horovod's elastic driver starts the ranks, not a launcherCommand",
    ),
    (
        "!has(self.elastic) || !has(self.launcher.asWorker) || !self.launcher.asWorker",
        "elastic does not go with launcher.asWorker: workers come and go, the launcher cannot",
    ),
    (
        "!has(self.elastic) || !has(self.mpi.args) || self.mpi.args.size() == 0",
        "elastic does not go with mpi.args: Horovod's elastic driver starts the ranks, not mpirun",
    ),
    (
        "!has(self.elastic) || self.mpi.implementation == 'OpenMPI'",
        "elastic does not go with MPICH and Intel MPI: Horovod's elastic driver starts the ranks, not mpirun",
    ),
    (
        "!has(self.env) || self.env.all(e, !e.name.startsWith('HOROVODJOB_') && !e.name.startsWith('AZ_BATCHAI_'))",
        "env: names that begin with HOROVODJOB_ or AZ_BATCHAI_ are set by the operator, choose another name",
    ),
    (
        "!has(self.env) || self.env.all(e, !has(e.value) || !has(e.valueFrom))",
        "env: a variable has either a value or a valueFrom, not both",
    ),
    (
        "!has(self.volumes) || self.volumes.all(v, !v.name.startsWith('horovodjob-'))",
        "volumes: names that begin with horovodjob- belong to the operator, choose another name",
    ),
    (
        "!has(self.volumeMounts) || self.volumeMounts.all(m, has(self.volumes) && "
        "self.volumes.exists(v, v.name == m.name))",
        "volumeMounts: each name must be that of an entry of spec.volumes",
    ),
    (
        "!has(self.azureFiles) || self.azureFiles.all(a, self.azureFiles.exists_one(b, "
        "(has(a.relativeMountPath) ? a.relativeMountPath : a.name) == "
        "(has(b.relativeMountPath) ? b.relativeMountPath : b.name)))",
        "azureFiles: two entries have one mount path; give each a relativeMountPath of its own",
    ),
)
