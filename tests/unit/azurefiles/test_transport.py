"""The transport of the SDK's clients: proxies and certificates of the environment, which is read once."""

from typing import Any

import pytest
import requests.utils

from horovodjob.azurefiles.share import new_transport

FILES = "https://acc.file.core.windows.net/share/"
ASKED = {"stream": True, "verify": True, "cert": None}


def test_the_environment_is_read_once_for_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "internal.example")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/etc/company.pem")
    read, search = [], requests.utils.get_environ_proxies

    def recorded(url: str, **options: Any) -> Any:
        read.append(url)
        return search(url, **options)

    monkeypatch.setattr("requests.sessions.get_environ_proxies", recorded)
    session = new_transport().session
    for name in ("a", "b", "c"):
        found = session.merge_environment_settings(f"{FILES}{name}", proxies={}, **ASKED)
        assert (found["proxies"]["https"], found["verify"]) == ("http://proxy.example:3128", "/etc/company.pem")
        found["proxies"].clear()
    assert session.merge_environment_settings("https://internal.example/", proxies={}, **ASKED)["proxies"] == {}
    assert len(read) == 2


def test_requests_have_the_times_and_no_repetitions_of_the_sdk() -> None:
    transport = new_transport()
    assert (transport.connection_config.timeout, transport.connection_config.read_timeout) == (20, 60)
    assert transport.session.get_adapter(FILES).max_retries.total is False
