"""The output of a job arrives whole: whatever its timestamps are, over any number of connections, on a terminal too."""

from pathlib import Path

import pytest

from cli.cluster_state import ClusterState
from cli.kubelet import NODE, Kubelet, Log
from cli.program import hvj_process, terminal
from horovodjob import Client
from horovodjob.escaping import COLOR
from support.api_client import Object, wait_for

LINES = 3_000


@pytest.fixture
def job(cluster: ClusterState) -> Object:
    """A job whose launcher runs."""
    job = cluster.create()
    cluster.run()
    cluster.pod(job, "launcher", node=NODE)
    return job


@pytest.fixture
def log(cluster: ClusterState, kubelet: Kubelet, job: Object) -> Log:
    """The log of its launcher."""
    return kubelet.log(cluster.namespace, "train-launcher")


def end(cluster: ClusterState, log: Log) -> None:
    """The job succeeds."""
    cluster.end("train-launcher", "launcher")
    cluster.succeed()
    log.end()


def write_two_streams(log: Log) -> list[str]:
    """Lines of two streams: containerd reads each by itself, CRI-O gives all lines of one read one time."""
    lines = []
    for number in range(LINES):
        stream, clock = ("stdout", 10 + number // 100 * 100) if number % 2 else ("stderr", 7 + number)
        lines.append(f"{stream} {number // 4}")  # some are the same
        log.write_at(f"2026-11-22T12:00:{clock // 1000:02}.{clock % 1000:03}000000Z", f"{lines[-1]}\n".encode())
    return lines


def test_no_line_of_two_streams_is_lost(cluster: ClusterState, log: Log, tmp_path: Path) -> None:
    lines = write_two_streams(log)
    log.cuts += (75_003, 77, 50_001)
    output = tmp_path / "output"
    with output.open("w") as file, hvj_process("attach", "train", stdout=file) as process:
        wait_for("the first lines", lambda: output.stat().st_size > 0)
        end(cluster, log)
        process.communicate()
    assert output.read_text().splitlines() == lines
    assert log.cuts == []


def test_lines_that_a_connection_loses_after_the_end_of_the_container_arrive(cluster: ClusterState, log: Log) -> None:
    log.cuts.append(60)  # within the second line
    log.write("first")
    with hvj_process("attach", "train") as process:
        assert process.stdout
        assert process.stdout.readline() == "first\n"
        cluster.end("train-launcher", "launcher")
        log.write("second", "third")
        cluster.succeed()
        log.end()
        assert process.communicate()[0] == "second\nthird\n"


def test_python_gets_text_and_bytes_of_a_torn_character(cluster: ClusterState, log: Log) -> None:
    log.write_at("2026-11-22T12:00:00Z", "größer".encode()[:3] + b"\n")
    log.write_at("2026-11-22T12:00:00Z", b"no newline")
    lines = Client().logs("train", role="launcher")
    first = next(lines)
    assert (first.source, first.text, first.data) == ("launcher", "gr\ufffd", b"gr\xc3")
    end(cluster, log)
    assert [line.text for line in lines] == ["no newline"]


def test_a_progress_bar_shows_its_state_on_a_terminal_while_it_runs(cluster: ClusterState, log: Log) -> None:
    with terminal("attach", "train") as screen:
        for percent in (10, 20, 30):
            log.write_at("2026-11-22T12:00:00Z", f"\r{percent}% of the epoch".encode())
            screen.until(f"{percent}% of the epoch")
        log.write_at("2026-11-22T12:00:00Z", b"\r100% of the epoch\r\n")
        screen.until("100% of the epoch\n")
        log.write("next")
        screen.until("next\n")
        end(cluster, log)
        assert screen.end() == 0


def test_in_a_pipe_a_progress_bar_is_one_line_with_its_last_state(
    cluster: ClusterState, log: Log, tmp_path: Path
) -> None:
    log.write("begin")
    log.write_at("2026-11-22T12:00:00Z", b"\r0%")
    with hvj_process("attach", "train") as process:
        assert process.stdout
        assert process.stdout.readline() == "begin\n"
        log.write_at("2026-11-22T12:00:00Z", b"\r50%\r100%\n")
        log.write("next")
        end(cluster, log)
        assert process.communicate()[0] == "100%\nnext\n"
    with (tmp_path / "raw").open("w") as file, hvj_process("attach", "train", "--raw", stdout=file) as process:
        process.communicate()
    assert (tmp_path / "raw").read_bytes() == b"begin\n\r0%\r50%\r100%\nnext\n"


def test_in_a_pipe_the_bars_of_keras_and_nested_ones_are_what_a_terminal_shows_at_the_end(
    cluster: ClusterState, log: Log
) -> None:
    bar = "\r\x1b[1m{}/2\x1b[0m \x1b[32m{}\x1b[0m - loss: {}"
    keras = bar.format(1, "━", "0.5100") + 20 * "\b" + bar.format(2, "━━", "0.5  ")
    log.write("begin", keras, "\router 0", "\rinner 1\x1b[A\router 1", "\rinner 2\x1b[A\router 2", "", "end")
    end(cluster, log)
    with hvj_process("attach", "train") as process:
        shown = [COLOR.sub("", line).rstrip() for line in process.communicate()[0].splitlines()]
    assert shown == ["begin", "2/2 ━━ - loss: 0.5", "outer 0", "outer 2", "inner 2", "end"]


@pytest.mark.parametrize("command", [("attach", "train"), ("job", "logs", "-n", "train")])
def test_commands_for_the_terminal_are_shown_as_text_unless_the_output_is_raw(
    cluster: ClusterState, log: Log, command: tuple[str, ...]
) -> None:
    log.write("\x1b]52;c;cm0gLXJm\x07\x1b[31mred")
    end(cluster, log)
    with hvj_process(*command) as process:
        assert "^[]52;c;cm0gLXJm^G\x1b[31mred\x1b[0m\n" in process.communicate()[0]
    with terminal(*command) as screen:
        assert screen.end() == 0
        assert "^[]52;c;cm0gLXJm^G" in screen.shown
        assert "\x1b]52" not in screen.shown
    with hvj_process(*command, "--raw") as process:
        assert "\x1b]52;c;cm0gLXJm\x07\x1b[31mred\n" in process.communicate()[0]
