"""The parts of a page that are made from data: `python -m tests.docs.generated` writes them."""

from __future__ import annotations

from leasehold._core.schemes import OPENED
from leasehold.advice.guarantees import comparison, markdown
from tests.docs.blocks import ROOT

PAGE = ROOT / "docs" / "concepts" / "which-store.md"
COMPARED = ("redis", "sentinel", "zookeeper", "etcd", "postgresql")  # where servers decide, with and without consensus
MADE = {"guarantees": markdown(OPENED), "comparison": comparison(COMPARED)}


def begin(part: str) -> str:
    """The line before a part."""
    return f"<!-- {part}: written by python -m tests.docs.generated -->\n"


def end(part: str) -> str:
    """The line after it."""
    return f"<!-- end of {part} -->\n"


def generated(page: str) -> str:
    """The page with the tables of guarantees as the data says."""
    for part, made in MADE.items():
        before, _, rest = page.partition(begin(part))
        _, _, after = rest.partition(end(part))
        page = f"{before}{begin(part)}\n{made}\n\n{end(part)}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
