"""The part of a page that is made from data: `python -m tests.docs.generated` writes it."""

from __future__ import annotations

from leasehold._core.schemes import OPENED
from leasehold.advice.guarantees import markdown
from tests.docs.blocks import ROOT

PAGE = ROOT / "docs" / "concepts" / "which-store.md"
BEGIN, END = "<!-- guarantees: written by python -m tests.docs.generated -->\n", "<!-- end of guarantees -->\n"


def generated(page: str) -> str:
    """The page with the tables of guarantees as the data says."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{markdown(OPENED)}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
