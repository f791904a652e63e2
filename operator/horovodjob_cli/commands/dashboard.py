"""`hvj dashboard`."""

import asyncio
import contextlib
import socket
import sys
import webbrowser
from collections.abc import Callable
from typing import Annotated

import typer

from horovodjob.client.cluster import kube
from horovodjob.client.errors import ClientError, UsageError
from horovodjob.client.messages import message
from horovodjob_cli.commands import command, group

app = group("A page with the jobs of a cluster.")
LOOPBACK = "127.0.0.1"
NOTHING: list[str] = []


@command(app, "dashboard")
def dashboard(
    namespace: Annotated[
        str | None,
        typer.Option(
            *("--namespace", "--workspace", "-w", "-n"),
            metavar="NAME",
            help="Only the jobs of this namespace. Default: of all that you may list.",
        ),
    ] = None,
    context: Annotated[
        list[str],
        typer.Option(metavar="NAME", help="Context of the kubeconfig; repeat it for pages of several clusters."),
    ] = NOTHING,
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="Port of this machine; 0 is a free one.")
    ] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    link: Annotated[
        list[str],
        typer.Option(metavar="TITLE=ADDRESS", help="Link of each job, with {namespace} and {name}; repeatable."),
    ] = NOTHING,
    gpu_hour_price: Annotated[
        str | None, typer.Option(metavar="PRICE", help="Price of a GPU hour on the pages, such as '2.90 EUR'.")
    ] = None,
    spot_gpu_hour_price: Annotated[
        str | None, typer.Option(metavar="PRICE", help="That of jobs with spec.spot, such as '0.90 EUR'.")
    ] = None,
) -> None:
    """Serve a page with the jobs of a cluster on this machine, with the rights of the kubeconfig, until Ctrl-C."""
    try:
        from horovodjob_dashboard.local_access import redirecting_file
        from horovodjob_dashboard.page_settings import LinkTemplate, PageSettings, Price
        from horovodjob_dashboard.server import Context, serve
    except ModuleNotFoundError as error:
        raise ClientError(f"the dashboard needs {error.name}; run `pip install 'horovodjob[dashboard]'`") from None

    try:
        prices = [Price.parse(text) if text else None for text in (gpu_hour_price, spot_gpu_hour_price)]
        settings = PageSettings([LinkTemplate.parse(each) for each in link], *prices)
    except ValueError as error:
        raise UsageError(str(error)) from None

    def context_of(name: str | None) -> Context:
        kube.refine(None, name)
        return Context(
            name=name or "",
            cluster=str(kube.active_context().get("cluster", "")),
            client=kube.client(),
            only=kube.namespace(namespace) if namespace is not None else "",
            default=kube.namespace(None),
        )

    contexts = [context_of(each) for each in dict.fromkeys(context) or (None,)]
    try:
        listener = socket.create_server((LOOPBACK, port))
    except OSError as error:
        raise ClientError(
            f"port {port} of {LOOPBACK} cannot be used ({error.strerror}); choose another with --port"
        ) from None

    with listener, contextlib.ExitStack() as stack:

        def is_ready(new_address: Callable[[], str]) -> None:
            sys.stdout.write(f"{new_address()}\n")
            sys.stdout.flush()
            message("Ctrl-C ends the dashboard")
            if browser:
                webbrowser.open(stack.enter_context(redirecting_file(new_address())))

        asyncio.run(serve(listener, contexts, settings, is_ready))
