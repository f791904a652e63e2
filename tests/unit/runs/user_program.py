"""A program of a user, which `make lint` checks with mypy strict: an ignored error that is none fails as well."""

from horovodjob import Client, Job, Trial


def train(lr: float) -> None:
    """Train."""


def run_jobs() -> tuple[int | None, float | None]:
    """What a program does with jobs and sweeps."""
    client = Client("team-a")
    job: Job = client.run("train.py", "--epochs", 3, workdir="project", nodes=2, gpus=0, env={"SEED": "1"})
    client.run(source=job, nodes=1)
    client.run(train, args={"lr": 0.1}, image="trainer:1")
    client.run(command=["python3", "train.py"], elastic=(2, 8))
    ended = client.wait(job, progress=lambda job: print(job.phase))
    best: Trial = client.sweep("train.py", parameters={"lr": [0.1, 0.01]}, metric="loss", nodes=2)
    for line in client.logs(job, follow=False):
        print(line.source.upper(), line.text.upper())
    client.run("train.py", node=2)  # type: ignore[call-arg]
    client.run("train.py", nodes="2")  # type: ignore[arg-type]
    return ended.exit_code, best.value
