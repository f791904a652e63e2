"""What an administrator sets for the pages: links to other tools, and what a GPU hour costs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

PLACEHOLDER = re.compile(r"\{(\w*)\}")
FIELDS = ("namespace", "name", "uid", "experiment", "owner")
PRICE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(?: ([^\s\d]{1,8}))?")


@dataclass(frozen=True, slots=True)
class LinkTemplate:
    """A link of each job; `{namespace}`, `{name}` and others of `FIELDS` in its address are those of the job."""

    title: str
    address: str

    @classmethod
    def parse(cls, text: str) -> "LinkTemplate":
        """The link in `TITLE=ADDRESS`. Raises ValueError with a sentence."""
        title, separator, address = text.partition("=")
        if not separator or not title.strip():
            raise ValueError(f"link {text!r} must be TITLE=ADDRESS, such as Grafana=https://grafana.example.com/d/jobs")
        return cls(title.strip(), _checked(address.strip()))

    def of(self, job: Mapping[str, str]) -> str:
        """The address for a job, by the names of `FIELDS`."""
        return PLACEHOLDER.sub(lambda found: quote(job.get(found[1], ""), safe=""), self.address)


def _checked(address: str) -> str:
    try:
        parts = urlsplit(address)
        host = parts.hostname if parts.port != 0 else None
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc or not re.fullmatch(r"[!-~]+", address):
        raise ValueError(f"link address {address!r} must begin with http:// or https:// and a host, without blanks")
    if "{" in parts.netloc or "\\" in address:
        raise ValueError(
            f"link address {address!r}: a job must not decide the host; use placeholders in the path or query"
        )
    for name in PLACEHOLDER.findall(address):
        if name not in FIELDS:
            raise ValueError(f"link address {address!r} has {{{name}}}; known are {', '.join(FIELDS)}")
    return address


@dataclass(frozen=True, slots=True)
class Price:
    """What a GPU hour costs."""

    amount: float
    currency: str

    @classmethod
    def parse(cls, text: str) -> "Price":
        """The price in `2.90 EUR`. Raises ValueError with a sentence."""
        found = PRICE.fullmatch(text.strip())
        if not found:
            raise ValueError(f"price {text!r} must be a number, with a currency if you want one, such as 2.90 EUR")
        return cls(float(found[1]), found[2] or "")

    def of(self, gpu_hours: float) -> str:
        """What so many GPU hours cost."""
        return f"{gpu_hours * self.amount:,.2f} {self.currency}".strip()

    def __str__(self) -> str:
        return f"{self.amount:g} {self.currency}".strip()


@dataclass(frozen=True, slots=True)
class PageSettings:
    """The settings of all pages."""

    links: Sequence[LinkTemplate] = ()
    price: Price | None = None
    spot_price: Price | None = None
    """That of jobs with spec.spot; None: the same."""

    def __post_init__(self) -> None:
        """Raises ValueError with a sentence."""
        if self.spot_price is None:
            return
        if self.price is None:
            raise ValueError("a price of spot nodes needs the price of a GPU hour on other nodes")
        if self.spot_price.currency != self.price.currency or self.spot_price.amount > self.price.amount:
            raise ValueError(
                f"price {self.spot_price} of spot nodes must be at most {self.price}, in the same currency"
            )

    def cost(self, gpu_hours: float, spot_gpu_hours: float) -> str:
        """What GPU hours cost, of which so many are those of jobs with spec.spot; empty without a price."""
        if self.price is None:
            return ""
        amount = self.price.amount * gpu_hours - self._saving() * spot_gpu_hours
        return Price(amount, self.price.currency).of(1)

    def saving(self, spot_gpu_hours: float) -> str:
        """What spot nodes have saved; empty where there is no price of them, or no hours."""
        if self.spot_price is None or not spot_gpu_hours:
            return ""
        return Price(self._saving(), self.spot_price.currency).of(spot_gpu_hours)

    def _saving(self) -> float:
        return self.price.amount - self.spot_price.amount if self.price and self.spot_price else 0.0

    def links_of(self, job: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Titles and addresses of the links of a job."""
        for link in self.links:
            yield link.title, link.of(job)
