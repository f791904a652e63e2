"""What the demo says before it begins."""

import os

import pytest
from demo import demo


def test_without_root_the_demo_says_at_once_what_else_is_possible(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(demo, "run_step", lambda *_: pytest.fail("something began"))
    assert demo.main() == 1
    said = capsys.readouterr()
    assert said.err == (
        "\ndemo: a local cluster needs root: use sudo, or set KUBECONFIG and IMAGE_REGISTRY for another one\n"
    )


@pytest.mark.parametrize(
    ("kubeconfig", "sentence"),
    [
        ("/no/such/file", "KUBECONFIG names /no/such/file, which does not exist"),
        ("/dev/null", "KUBECONFIG is set, so IMAGE_REGISTRY has to name the registry with operator and trainer image"),
    ],
)
def test_what_a_cluster_of_the_user_lacks_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kubeconfig: str, sentence: str
) -> None:
    monkeypatch.setenv("KUBECONFIG", kubeconfig)
    monkeypatch.delenv("IMAGE_REGISTRY", raising=False)
    assert demo.main() == 1
    assert capsys.readouterr().err == f"\ndemo: {sentence}\n"
