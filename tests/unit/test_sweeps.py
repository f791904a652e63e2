"""Sweeps without a cluster: the definition in a file, the job of a trial, and a study that is built from jobs."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from horovodjob.conversion import ConversionError
from horovodjob.sweeps.definition import Definition, parse
from horovodjob.sweeps.parameters import Choices
from horovodjob.sweeps.study import Study
from horovodjob.sweeps.trials import State, Trial, best, definition_of, deleted, ends, record, trial, trial_job
from horovodjob.training_history import Goal

Object = dict[str, Any]
SPEC = {
    "image": "trainer:1",
    "worker": {"replicas": "${nodes}", "gpus": 0},
    "command": ["train", "--lr", "${lr}", "--dir=/out/${job}", "sh -c 'echo $${HOME}'"],
}
JOB = {
    "apiVersion": "horovodjob.dev/v1beta1",
    "kind": "HorovodJob",
    "metadata": {"name": "ignored", "labels": {"team": "a"}},
    "spec": SPEC,
}
SWEEP: Object = {
    "name": "digits",
    "metric": "val_accuracy",
    "direction": "max",
    "parameters": {"lr": "log:1e-4:1e-1", "nodes": "2,4"},
    "job": JOB,
}


def sweep(**changes: Any) -> Definition:
    """A sweep, with these fields changed."""
    return parse({**SWEEP, **changes})


def job(definition: Definition, number: int, values: Object, *epochs: float, phase: str = "Running") -> Object:
    """The job of a trial with these values of the metric after its epochs."""
    made = copy.deepcopy(trial_job(definition, number, values, "ns"))
    history = [{"epoch": epoch, "metrics": {definition.metric: value}} for epoch, value in enumerate(epochs, 1)]
    training = {"training": {"metrics": history[-1]["metrics"], "history": history}} if history else {}
    return {**made, "status": {"phase": phase, **training}}


def problems(**changes: Any) -> list[str]:
    """The sentences about a sweep with these fields changed."""
    with pytest.raises(ConversionError) as error:
        sweep(**changes)
    return list(map(str, error.value.problems))


NOTATION = "write float:LOW:HIGH, log:LOW:HIGH, int:LOW:HIGH, logint:LOW:HIGH, or values such as 32,64"


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("log:0:1", "begins at 0, which has no logarithm: begin above 0, or use float"),
        ("logint:0:8", "begins at 0, which has no logarithm: begin above 0, or use int"),
        ("float:1:1", "has the empty range 1 to 1: the lower bound must be below the upper"),
        ("int:1:2.5", "has the bound '2.5', which is not a whole number"),
        ("float:0:inf", "has the bound 'inf', which is not a number"),
        ("float:1", "must be float:LOW:HIGH, or float:LOW:HIGH:STEP"),
        ("float:0:1:2", "has the step 2: it must be above 0 and at most the width of the range"),
        ("log:1:2:1", "has a step, which a range of log cannot have: use float"),
        ("lgo:1:2", f"has no range 'lgo:1:2': {NOTATION}"),
        (70, f"is 70, which is neither a range nor values: {NOTATION}"),  # what YAML makes of 1:10
        ([], "has 0 values: it must have from 1 to 1000"),
        ("32 64", "has the one value '32 64': write commas between values, or put it into quotes"),
        ("loguniform(1, 2)", f"has 'loguniform(1, 2)', where 'loguniform(1, 2)' is not understood: {NOTATION}"),
        ("[[1, 2], [3]]", f"has '[[1, 2], [3]]', where '[1, 2], [3]' is not understood: {NOTATION}"),
        ("32,,64", "has the value '': a value is a number, text, true or false"),
        ([32, "32"], "has 32 twice: name each value once"),
        ([{"a": 1}], "has the value {'a': 1}: a value is a number, text, true or false"),
    ],
)
def test_a_parameter_that_cannot_be_searched_is_one_sentence(value: Any, sentence: str) -> None:
    assert problems(parameters={"lr": value, "nodes": "2,4"}) == [f"parameters.lr: {sentence}"]


@pytest.mark.parametrize(
    ("value", "values"),
    [
        ("adam, sgd", ("adam", "sgd")),
        ("[32, 64]", (32, 64)),
        (" (32,64) ", (32, 64)),
        ("""["a, b", 'c']""", ("a, b", "c")),
        ("'log:1:2'", ("log:1:2",)),
        ("http://x, http://y", ("http://x", "http://y")),
        ("-1, 1e-3, true", (-1, "1e-3", "true")),
        ("007, 10, 0, -0, ١", ("007", 10, 0, "-0", "١")),
    ],
)
def test_values_are_read_as_people_write_them(value: str, values: tuple[Any, ...]) -> None:
    found = sweep(parameters={"lr": value, "nodes": "2,4"}).parameters["lr"]
    assert isinstance(found, Choices)
    assert found.values == values


def test_lists_are_a_grid_in_which_each_combination_is_tried_once() -> None:
    parameters = {"lr": "0.1, 0.01, 0.001", "nodes": [2, 4]}
    assert (sweep(parameters=parameters).trials, sweep(parameters=parameters).is_grid) == (6, True)
    assert sweep(parameters=parameters, parallel=8).parallel == 6
    for trials in (6, 20):
        definition = sweep(parameters=parameters, trials=trials)
        known: list[Trial] = []
        for number in range(definition.trials):  # each time as a program that begins again
            values = Study(definition, known).ask(number)
            known.append(trial(job(definition, number, values, 0.5, phase="Failed"), definition))
        assert len({tuple(each.parameters.values()) for each in known}) == len(known) == 6
    assert not sweep(parameters=parameters, sampler="tpe").is_grid
    assert sweep(parameters={"lr": "log:1e-4:1", "nodes": [2, 4]}).trials == 20
    (many,) = problems(parameters={name: list(range(30)) for name in ("lr", "nodes", "x")}, job=with_argument("${x}"))
    assert many.startswith("trials: is missing: there are 27000 combinations")


def with_argument(word: str) -> Object:
    """The job with one more argument."""
    return {**JOB, "spec": {**SPEC, "command": [*SPEC["command"], word]}}


def test_trials_of_other_code_image_or_search_have_another_setup_and_those_of_another_metric_the_same() -> None:
    own = sweep()
    assert sweep(metric="val_loss", trials=3, sampler="random").setup == own.setup
    assert sweep(job={**JOB, "spec": {**SPEC, "runPolicy": {"backoffLimit": 2}}}).setup == own.setup
    other = sweep(job={**JOB, "spec": {**SPEC, "image": "trainer:2"}}, parameters={"lr": "1,2", "nodes": "2,4"})
    assert other.setup != own.setup
    assert other.differences(own) == ["parameter lr", "image"]
    code = [{"name": name, "configMap": {"name": "a"}} for name in ("code", "code-archive")]
    changed = [{"name": name, "configMap": {"name": "b"}} for name in ("code", "code-archive")]
    old, new = (sweep(job={**JOB, "spec": {**SPEC, "volumes": volumes}}) for volumes in (code, changed))
    assert new.differences(old) == ["code"]


@pytest.mark.parametrize("metric", ["val_accuracy", "giou_loss"])
def test_the_name_of_a_metric_does_not_say_what_is_best(metric: str) -> None:
    undeclared = undirected(metric=metric)
    trials = {
        number: trial(job(undeclared, number, VALUES, value, phase="Succeeded"), undeclared)
        for number, value in enumerate((0.5, 0.9, 0.1))
    }
    found = ends(trials)
    assert (best(trials, undeclared.goal), [each.number for each in found or ()]) == (None, [2, 1])
    assert undirected(metric=metric, direction="min").goal is Goal.MIN
    assert [undirected(metric=each).goal for each in ("loss", "val_loss")] == [Goal.MIN] * 2, "Keras minimizes it"


def undirected(**changes: Any) -> Definition:
    """A sweep without a direction, with these fields changed."""
    return parse({**{key: value for key, value in SWEEP.items() if key != "direction"}, **changes})


def test_a_search_that_learns_from_results_needs_to_know_which_are_good() -> None:
    assert undirected().needs_goal
    assert not undirected(sampler="random").needs_goal
    assert not undirected(parameters={"lr": "0.1,0.2", "nodes": "2,4"}).needs_goal
    assert undirected(sampler="random", pruner="MedianPruner").needs_goal
    assert undirected(sampler="random", value="best").needs_goal


def test_without_a_direction_no_trial_is_pruned() -> None:
    definition = undirected(sampler="random")
    known = finished_trials(definition, *[(0.5, 0.6)] * 10)
    running = trial(job(definition, 10, VALUES, 0.1, 0.1), definition)
    assert not Study(definition, known).observe(running)
    assert Study(replace(definition, goal=Goal.MAX), known).observe(running)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_metric_that_is_not_a_number_is_the_worst_result_and_named(phase: str) -> None:
    definition = sweep()
    diverged = job(definition, 0, VALUES, 0.9, phase=phase)
    diverged["status"]["training"]["nonFinite"] = ["val_accuracy"]
    diverged["status"]["conditions"] = [{"type": "Failed", "status": "True", "reason": "RankFailed", "message": "x"}]
    found = trial(diverged, definition)
    assert found.state is State.COMPLETE
    assert found.message.startswith("val_accuracy is NaN or infinite, the worst result")
    assert record(found, "val_accuracy")["value"] is None
    good = trial(job(definition, 1, VALUES, 0.1, phase="Succeeded"), definition)
    winner = best({0: found, 1: good}, Goal.MAX)
    assert (winner and winner.number, best({0: found}, Goal.MAX)) == (1, None)
    study = Study(definition, [found, good])
    assert study.ask(2)


def test_the_message_of_a_failed_trial_has_the_last_line_of_its_program() -> None:
    definition = sweep()
    failed = job(definition, 0, VALUES, phase="Failed")
    failed["status"]["conditions"] = [
        {"type": "Failed", "status": "True", "reason": "RankFailed", "message": "mpirun ended with exit code 1"}
    ]
    dashes = "-" * 60
    failed["status"]["errors"] = [
        {
            "message": "Primary job terminated normally.\n" + dashes + "\nTraceback (most recent call last):\n"
            "ValueError: no such optimizer: sgdd\n" + dashes + "\nmpirun detected that one or more processes exited\n"
            + dashes + "\n2026-11-24T14:32:27Z horovodjob: mpirun ended with exit code 1 (attempt 1)\n"
        }
    ]  # fmt: skip
    assert trial(failed, definition).message == "mpirun ended with exit code 1: ValueError: no such optimizer: sgdd"
    known = "KeyError: 'lr' (RankFailed: mpirun ended with exit code 1)"
    failed["status"]["conditions"][0]["message"] = known
    assert trial(failed, definition).message == known


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"trials": 0}, "trials: must be from 1 to 10000, and is 0"),
        ({"trials": 2, "parallel": 3}, "parallel: is 3, and the sweep has 2 trials: use at most that many"),
        ({"metric": None}, "metric: is missing: add it"),
        ({"direction": "up"}, "direction: is 'up': it must be min or minimize or max or maximize"),
        ({"value": "mean"}, "value: is 'mean': it must be last or best"),
        (
            {"sampler": ["TPE"]},
            "sampler: must be the name of a sampler of Optuna, or the name with an object of its options",
        ),
        ({"job": None}, "job: is missing: add the HorovodJob of a trial, with ${NAME} for the value of a parameter"),
        ({"job": {**JOB, "kind": "Job"}}, "job.kind: must be HorovodJob"),
        ({"paralel": 2}, "paralel: is no field of a sweep: write parallel"),
        (
            {"name": "Digits"},
            "name: is 'Digits': it must be at most 48 lower-case letters, digits and -, and begin with a letter, "
            "because the jobs are NAME-0, NAME-1 and so on",
        ),
        (
            {"job": {**JOB, "spec": {**SPEC, "runPolicy": {"ttlSecondsAfterFinished": 60}}}},
            "job.spec.runPolicy.ttlSecondsAfterFinished: would delete the results with the jobs: remove it, and delete "
            "the experiment after the sweep",
        ),
        (
            {"job": {**JOB, "spec": {**SPEC, "env": [{"name": "A", "value": "${rate}"}]}}},
            "job.spec.env[0].value: ${rate} is not a parameter (lr, nodes, trial, job): write $${rate} for the text "
            "itself",
        ),
        (
            {"parameters": {**SWEEP["parameters"], "batch": "32,64"}},
            "parameters.batch: is not used: write ${batch} in job.spec, such as --batch=${batch} among its arguments",
        ),
        (
            {"parameters": {**SWEEP["parameters"], "trial": "1,2"}},
            "parameters.trial: a name has letters, digits, _, - and ., and is neither trial nor job",
        ),
    ],
)
def test_a_sweep_that_cannot_run_is_one_sentence(changes: Object, sentence: str) -> None:
    assert problems(**changes) == [sentence]


def test_a_job_has_its_parameters_as_text_in_arguments_and_as_numbers_where_the_resource_has_numbers() -> None:
    made = trial_job(sweep(), 7, {"lr": 0.0025, "nodes": 4}, "ns")
    assert made["metadata"]["name"] == "digits-7"
    assert made["metadata"]["labels"]["team"] == "a"
    assert made["spec"]["worker"] == {"replicas": 4, "gpus": 0}
    assert made["spec"]["command"] == ["train", "--lr", "0.0025", "--dir=/out/digits-7", "sh -c 'echo ${HOME}'"]


def test_a_job_has_the_whole_definition_of_its_sweep() -> None:
    definition = sweep(trials=9, sampler={"TPESampler": {"seed": 3}})
    assert definition_of(trial_job(definition, 0, {"lr": 0.1, "nodes": 2}, "ns")) == definition


VALUES = {"lr": 0.01, "nodes": 2}


def test_the_value_of_a_trial_is_that_of_its_last_epoch_or_of_its_best() -> None:
    for measure, value, epoch in (("last", 0.7, 3), ("best", 0.9, 2)):
        found = trial(job(sweep(value=measure), 0, VALUES, 0.5, 0.9, 0.7, phase="Succeeded"), sweep(value=measure))
        assert (found.state, found.value, found.epoch) == (State.COMPLETE, value, epoch)


def test_a_job_that_succeeded_without_the_metric_has_failed_and_names_what_it_reported() -> None:
    found = trial(job(sweep(metric="loss"), 0, VALUES, 0.5, phase="Succeeded"), sweep())
    assert (found.state, found.message) == (State.FAILED, "it succeeded and reported no val_accuracy, but loss")


def test_the_best_trial_depends_on_the_direction_of_the_metric() -> None:
    trials = {
        number: trial(job(sweep(), number, VALUES, value, phase="Succeeded"), sweep())
        for number, value in enumerate((0.5, 0.9, 0.9))
    }
    found = [best(trials, goal) for goal in (Goal.MAX, Goal.MIN)]
    assert [each.number for each in found if each] == [1, 0]
    assert best({}, Goal.MAX) is None


def finished_trials(definition: Definition, *curves: tuple[float, ...]) -> list[Trial]:
    """Finished trials with these values after their epochs."""
    asking = Study(definition)
    return [
        trial(job(definition, number, asking.ask(number), *curve, phase="Succeeded"), definition)
        for number, curve in enumerate(curves)
    ]


PRUNERS = [
    {"MedianPruner": {"n_startup_trials": 2}},
    {"SuccessiveHalvingPruner": {"min_resource": 1, "reduction_factor": 2}},
]


@pytest.mark.parametrize("pruner", PRUNERS)
def test_a_study_that_is_built_from_jobs_prunes_as_the_one_that_observed_them(pruner: Object) -> None:
    definition = sweep(pruner=pruner)
    known = finished_trials(definition, (0.5, 0.6, 0.7), (0.6, 0.7, 0.8), (0.7, 0.8, 0.9))
    lived = Study(definition)
    for each in known:
        for epochs in range(1, len(each.points) + 1):
            running = trial(job(definition, each.number, dict(each.parameters), *curve(each)[:epochs]), definition)
            lived.observe(running)
        lived.observe(each)
    rebuilt = Study(definition, reversed(known))
    for study in (lived, rebuilt):
        verdicts = []
        for number, values in ((3, (0.1,)), (4, (0.95,))):
            verdicts.append(study.observe(trial(job(definition, number, VALUES, *values), definition)))
        assert verdicts == [True, False]


def curve(each: Trial) -> list[float]:
    """The values of a trial."""
    return [value for _, value in each.points]


def test_a_study_with_a_seed_does_not_repeat_its_values_when_it_is_built_again() -> None:
    definition = sweep(sampler={"RandomSampler": {"seed": 1}})
    first = Study(definition)
    asked = [first.ask(number) for number in range(2)]
    known = [trial(job(definition, number, values), definition) for number, values in enumerate(asked)]
    assert Study(definition, known).ask(2) not in asked
    assert Study(definition).ask(0) == asked[0]


def test_a_trial_whose_job_was_deleted_is_failed_and_never_judged_again() -> None:
    definition = sweep(pruner=PRUNERS[0])
    study = Study(definition, finished_trials(definition, (0.5,), (0.6,)))
    running = trial(job(definition, 2, study.ask(2)), definition)
    assert record(deleted(running), "val_accuracy")["state"] == "failed"
    study.observe(deleted(running))
    assert study.observe(trial(job(definition, 2, VALUES, 0.1), definition)) is False


def test_an_exhaustive_search_ends_with_its_last_combination() -> None:
    parameters = {"lr": [0.1, 0.01], "nodes": "int:1:4:2"}
    definition = sweep(sampler="BruteForceSampler", parameters=parameters, trials=50)
    assert definition.trials == 4
    study, found = Study(definition), set()
    for number in range(4):
        values = study.ask(number)
        found.add(tuple(values.values()))
        study.observe(trial(job(definition, number, values, 0.5, phase="Succeeded"), definition))
    assert found == {(lr, nodes) for lr in (0.1, 0.01) for nodes in (1, 3)}
    assert sweep(trials=50).trials == 50


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sampler": "GridSampler"}, "sampler: GridSampler forgets its grid between trials; use BruteForceSampler"),
        ({"sampler": "TPES"}, "sampler: Optuna has no TPES; it has BruteForceSampler, CmaEsSampler, "),
        ({"pruner": {"MedianPruner": {"warmup": 3}}}, "pruner: MedianPruner does not take these options: "),
        ({"sampler": "BruteForceSampler"}, "sampler: BruteForceSampler cannot choose these parameters: "),
    ],
)
def test_a_sampler_or_a_pruner_that_cannot_work_is_one_sentence(changes: Object, sentence: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        Study(sweep(**changes)).ask(0)
    assert str(error.value).startswith(sentence)


def test_a_job_with_other_parameters_than_its_sweep_is_one_sentence() -> None:
    definition = sweep()
    with pytest.raises(ValueError, match=r"^job digits-0 has other parameters than its sweep .*: delete it$"):
        Study(definition, [trial(job(definition, 0, {"lr": 7, "nodes": 2}), definition)])
