"""Settings: precedence, the defaults of the tutorial, and error messages in one sentence."""

import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from horovodjob_trainer.cli.configuration import Configuration, load_configuration
from horovodjob_trainer.cli.inference_arguments import parse_arguments
from horovodjob_trainer.cli.settings import SETTINGS
from horovodjob_trainer.errors import UsageError
from horovodjob_trainer.launch import Launch, threads_per_rank, usable_cores
from support.tutorial.page import blocks

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "manifests" / "examples"
REFERENCE = ROOT / "docs" / "trainer-reference.md"
# Of a trained model.
COMMANDS = ("evaluate", "export", "predict")
TRAININGS = ("digits", "fine-tuning", "imagenet-resnet50-modern", "imagenet-resnet50", "text")


def configuration(*arguments: str, environment: Mapping[str, str] | None = None) -> Configuration:
    return load_configuration(arguments, environment=environment or {})


def error(*arguments: str, environment: Mapping[str, str] | None = None) -> str:
    with pytest.raises(UsageError) as raised:
        configuration(*arguments, environment=environment)
    return str(raised.value)


@pytest.fixture
def settings_file(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "settings.yaml"
        path.write_text(text)
        return str(path)

    return write


def test_the_defaults_are_those_of_the_tutorial() -> None:
    run = configuration()
    assert (run.dataset, run.epochs, run.batch_size, run.optimizer) == ("cifar10", 100, 32, "rmsprop")
    assert (run.learning_rate, run.learning_rate_scaling, run.decay) == (1e-4, "auto", 1e-6)
    assert (run.augment, run.flip, run.dir, run.model_name) == (True, True, Path("."), "keras_cifar10_trained_model")


def test_flags_override_environment_file_and_defaults_in_this_order(
    settings_file: Callable[[str], str],
) -> None:
    path = settings_file("batch-size: 8\nepochs: 5\nlr-steps: [10, 20]\nschedule: step\naugment: false\n")
    environment = {"TRAINER_EPOCHS": "6", "TRAINER_SEED": "9", "OTHER": "x"}
    run = configuration("--config", path, "--seed", "3", environment=environment)
    assert (run.batch_size, run.epochs, run.seed, run.optimizer) == (8, 6, 3, "rmsprop")
    assert (run.lr_steps, run.augment, run.flip) == ((10.0, 20.0), False, False)
    assert configuration(environment={"TRAINER_CONFIG": path}).batch_size == 8


def test_the_printed_configuration_is_a_file_for_the_same_run(
    settings_file: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = blocks(REFERENCE, "sh")[0].splitlines()
    program, documented = "python -m horovodjob_trainer ", first.removesuffix(" --print-config > run.yaml")
    assert second == f"{program}--config run.yaml"
    flags = [*shlex.split(documented.removeprefix(program)), "--schedule", "step", "--clip-norm", "1.5"]
    with pytest.raises(SystemExit) as raised:
        configuration(*flags, "--print-config", environment={"TRAINER_BATCH_SIZE": "16"})
    shown = capsys.readouterr().out
    assert raised.value.code == 0
    assert re.search(r"^batch-size: 16  # environment variable TRAINER_BATCH_SIZE$", shown, re.MULTILINE)
    assert re.search(r"^clip-norm: 1.5  # --clip-norm$", shown, re.MULTILINE)
    assert re.search(r"^# checkpoint-steps: not set$", shown, re.MULTILINE)
    assert configuration("--config", settings_file(shown)) == configuration(
        *flags, environment={"TRAINER_BATCH_SIZE": "16"}
    )
    assert len(yaml.safe_load(shown)) + shown.count(": not set") == len(SETTINGS)


def documented() -> Iterator[list[str]]:
    """The arguments of each command of the trainer in the pages, without those that name a file of settings."""
    for file in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = re.sub(r"horovodjob_trainer\.examples\.\w+:", "own:", "".join(blocks(file, "sh")))
        for line in text.replace("\\\n", " ").splitlines():
            _, trainer, words = line.partition("-m horovodjob_trainer ")
            if trainer and "--config" not in words:
                yield shlex.split(words.partition(" > ")[0].removesuffix("--print-config"))


def test_each_command_of_the_pages_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))  # with the reader's own modules
    found = list(documented())
    for module, name in re.findall(r"\b(own|table):(\w+)", str(found)):
        with (tmp_path / f"{module}.py").open("a") as file:
            file.write(f"def {name}(*arguments): ...\n")
    for words in found:
        parse_arguments(words) if words[0] in COMMANDS else configuration(*words)
    assert len(found) > 25


def test_the_validation_batch_is_limited_and_checkpoints_are_written_by_time_unless_steps_are_given() -> None:
    assert (configuration().validation_batch_size, configuration().checkpoint_seconds) == (32, 600)
    assert configuration("--batch-size", "8192").validation_batch_size == 250
    assert configuration("--batch-size", "8192", "--validation-batch-size", "4096").validation_batch_size == 4096
    assert configuration("--checkpoint-steps", "100").checkpoint_seconds is None
    assert configuration("--checkpoint-steps", "100", "--checkpoint-seconds", "60").checkpoint_seconds == 60


@pytest.mark.parametrize(("dataset", "name"), [("digits", "digits"), ("json:loads", "loads")])
def test_the_model_has_the_name_of_its_data_unless_it_is_set(dataset: str, name: str) -> None:
    assert configuration("--dataset", dataset).model_name == f"keras_{name}_trained_model"
    assert configuration("--dataset", dataset, "--model-name", "mine").model_name == "mine"


def test_a_function_in_data_is_the_data_set_unless_one_is_given(
    settings_file: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    run = configuration("--data", "json:loads")
    assert (run.dataset, run.data, run.model_name) == ("json:loads", None, "keras_loads_trained_model")
    assert configuration(environment={"TRAINER_DATA": "json:loads"}).dataset == "json:loads"
    run = configuration("--dataset", "json:loads", "--data", "a/b")
    assert (run.dataset, run.data) == ("json:loads", Path("a/b"))
    assert "there is no module no_module" in error("--data", "no_module:data")
    with pytest.raises(SystemExit):
        configuration("--data", "json:loads", "--print-config")
    assert configuration("--config", settings_file(capsys.readouterr().out)).dataset == "json:loads"


def test_digits_are_flipped_only_on_request() -> None:
    run = configuration("--dataset", "digits")
    assert (run.augment, run.flip) == (True, False)
    assert configuration("--dataset", "digits", "--flip").flip
    assert not configuration("--no-augment", "--flip").flip


def test_logs_are_written_beside_those_of_the_job() -> None:
    run = configuration("--dir", "/out", environment={"AZ_BATCHAI_STDOUTERR_DIR": "/logs"})
    assert (run.logs, run.tensorboard) == (Path("/logs"), Path("/logs/tensorboard"))
    assert configuration("--dir", "/out").logs == Path("/out")
    assert configuration("--tensorboard", "none").tensorboard is None


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--epochs", "0"], "--epochs: '0'"),
        (["--profile-steps", "110:100"], "--profile-steps: '110:100' is not a range of steps such as 100:110"),
        (["--profile-steps", "0:5"], "--profile-steps: '0:5' is not a range"),
        (["--profile-steps", "1:1001"], "'1:1001' has 1001 steps; a profile can have 1000"),
        (["--profile-steps", "5:9", "--max-steps", "4"], "--profile-steps begins at step 5, and --max-steps"),
        (["--profile-steps", "5:9", "--tensorboard", "none"], "--profile-steps writes to --tensorboard"),
        (["--epochs", "9" * 5000], "--epochs"),
        (["--batch-size", ""], "--batch-size: ''"),
        (["--learning-rate", "0"], "--learning-rate: '0'"),
        (["--learning-rate", "nan"], "--learning-rate: 'nan'"),
        (["--lr-steps", "30,20", "--schedule", "step"], "--lr-steps: '30,20'"),
        (["--lr-steps", "3"], "--lr-steps belongs to --schedule step"),
        (["--decay", "1e-4", "--schedule", "cosine"], "--decay belongs to --schedule decay"),
        (["--momentum", "0.9", "--optimizer", "adam"], "--momentum belongs to --optimizer sgd, momentum, rmsprop"),
        (["--freeze", "a,,b"], "--freeze: 'a,,b'"),
        (["--learning-rate-scaling", "cubic"], "'cubic' is none of auto, linear, sqrt, none"),
        (["--ema", "1"], "--ema: '1'"),
        (["--mixup", "0.2", "--no-augment"], "--mixup belongs to --augment"),
        (["--cutmix", "1", "--batch-size", "1"], "--cutmix belongs to --batch-size 2 or more"),
        (["--optimizer", "lars", "--clip-norm", "1"], "--clip-norm has no effect with --optimizer lars"),
        (["--validation-crop", "0.9"], "--validation-crop belongs to --dataset images or tfrecord, not to cifar10"),
        (["--normalize", "0.5:0"], "--normalize: '0.5:0' is neither imagenet nor"),
        (["--normalize", "0,1:nan,1"], "--normalize: '0,1:nan,1' is neither imagenet nor"),
        (["--normalize", "imagenet", "--model", "json:loads"], "--normalize belongs to --model tutorial, resnet18"),
        (["--seed", "2147483648"], "--seed: '2147483648'"),
        (["--dataset", "images"], "--dataset images needs --data"),
        (["--dataset", "no.such.module:data"], "no.such.module"),
        (["--model", "vgg"], "'vgg'"),
        (["--model-name", "../x"], "--model-name: '../x'"),
        (["--dir", ""], "--dir: the path is empty"),
        (["--learning-rat", "3"], "Did you mean one of: '--learning-rate'"),
        (["stray"], "stray"),
        (["--flip=on"], "--flip"),
        (["--archive-url", "file:///etc/passwd"], "'file:///etc/passwd'"),
        (["--archive-sha256", "abc"], "'abc'"),
        (["--archive-sha256", "any"], "needs --archive"),
        (["--archive", "a", "--archive-url", "http://host/a"], "two sources"),
        (["--dataset", "digits", "--archive", "a"], "--archive belongs to --dataset cifar10"),
        (["--epochs", "3", "--warmup-epochs", "4"], "more than the 3 epochs"),
        (["--config", "/no/such/file"], "cannot read /no/such/file: No such file"),
    ],
)
def test_an_invalid_setting_is_rejected_in_one_line_that_contains_it(arguments: Any, named: Any) -> None:
    sentence = error(*arguments)
    assert named in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("batch_sise: 3", "'batch_sise' is not a setting; did you mean batch-size?"),
        ("epochs: [1, 2]", "epochs must be a single value"),
        ("epochs: many", "epochs: 'many' is not a whole number"),
        ("- epochs", "contains no settings"),
        ("a: b: c", "is not valid YAML"),
        ("!!python/object/apply:os.system [true]", "is not valid YAML"),
    ],
)
def test_an_invalid_file_of_settings_is_rejected_with_its_path_and_setting(
    settings_file: Callable[[str], str], text: str, named: str
) -> None:
    path = settings_file(text)
    sentence = error("--config", path)
    assert named in sentence
    assert path in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("example", TRAININGS)
def test_the_settings_of_an_example_are_valid(example: str) -> None:
    command = yaml.safe_load((EXAMPLES / f"{example}.yaml").read_text())["spec"]["command"]
    configuration(*command[command.index("horovodjob_trainer") + 1 :])


def test_an_unknown_variable_is_rejected_with_a_suggestion() -> None:
    assert "TRAINER_EPOCH is not a setting; did you mean TRAINER_EPOCHS?" in error(environment={"TRAINER_EPOCH": "3"})
    assert "environment variable TRAINER_EPOCHS: 'x'" in error(environment={"TRAINER_EPOCHS": "x"})
    assert "environment variable TRAINER_FLIP: '' is neither" in error(environment={"TRAINER_FLIP": ""})


def test_every_setting_has_a_help_text(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        configuration("--help")
    assert raised.value.code == 0
    shown = capsys.readouterr().out
    for name in SETTINGS:
        assert re.search(rf"--{name}\b[^\n]*\s+\S", shown), name
    assert "--schedule [decay|constant|cosine|step]" in shown


def test_parsing_the_command_line_imports_neither_tensorflow_nor_horovod(
    run: Callable[..., Any], environment: dict[str, str]
) -> None:
    program = (
        "import sys; sys.argv[1:] = ['--help']\n"
        "try:\n    import horovodjob_trainer.__main__ as m; m.main()\n"
        "except SystemExit: assert not {'tensorflow', 'keras', 'horovod'} & set(sys.modules), 'loaded'\n"
    )
    assert run(1, [sys.executable, "-c", program]).code == 0


@pytest.mark.parametrize(
    ("environment", "launch"),
    [
        ({}, Launch()),
        (
            {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"},
            Launch(rank=3, size=8, local_size=4),
        ),
        ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_SIZE": "2"}, Launch(1, 2, 2)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "HOROVODJOB_ATTEMPT": "3"}, Launch(1, 2, 1, 3)),
        (
            {"HOROVODJOB_UID": "1-2", "HOROVODJOB_NAMESPACE": "training", "HOROVODJOB_NAME": "mnist"},
            Launch(job="1-2", job_name="training/mnist"),
        ),
        ({"HOROVOD_ELASTIC": "1", "HOROVOD_RANK": "0", "HOROVOD_SIZE": "1"}, Launch(elastic=True)),
    ],
)
def test_a_rank_reads_the_variables_of_any_launcher(environment: dict[str, str], launch: Any) -> None:
    assert Launch.from_environment(environment) == launch


@pytest.mark.parametrize(("ranks", "cores", "threads"), [(3, 8, 2), (8, 2, 1)])
def test_the_ranks_of_a_node_divide_its_cores(ranks: Any, cores: int, threads: int) -> None:
    assert threads_per_rank(Launch(local_size=ranks), cores) == threads


def test_the_cpu_limit_of_a_container_limits_its_cores(tmp_path: Path) -> None:
    limit = tmp_path / "cpu.max"
    unlimited = usable_cores(tmp_path / "absent")
    limit.write_text("100000 100000\n")
    assert usable_cores(limit) == 1
    limit.write_text("max 100000\n")
    assert usable_cores(limit) == unlimited
