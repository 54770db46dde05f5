"""The dialogs of ``leasehold top``: one resource in full, and the questions before an operator acts."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static


class Details(ModalScreen[None]):
    """Shows one resource until a key is pressed."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,i,enter", "close", "Close")]

    def __init__(self, resource: str, text: str) -> None:
        super().__init__()
        self.resource = resource
        self._text = text

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog"):
            yield Static(self._text, id="details", markup=False)
            yield Static("\nesc closes this", classes="hint", markup=False)

    def show(self, text: str) -> None:
        """What is known of it by now."""
        self.query_one("#details", Static).update(text)

    def action_close(self) -> None:
        self.dismiss(None)


class AskRevoke(ModalScreen[bool]):
    """Is the holder to be asked? True or False."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape,q", "answer(False)", "No"),
    ]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self._text, markup=False)
            yield Static("\ny asks it, n does not", classes="hint", markup=False)

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)


class AskClear(ModalScreen[str]):
    """Why is the lease to be taken away? The reason, or an empty text: it is not. If the holder seems alive, enter is
    to be pressed twice."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "Cancel")]

    def __init__(self, text: str, alive: str) -> None:
        super().__init__()
        self._text = text
        self._alive = alive  # why it seems so; empty when it does not

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self._text, markup=False)
            yield Input(placeholder="the reason, for the audit trail", id="reason", max_length=300)
            yield Static("enter takes the lease away, esc does not", id="hint", classes="hint", markup=False)

    def on_input_submitted(self, submitted: Input.Submitted) -> None:
        reason, alive = submitted.value.strip(), self._alive
        if reason and not alive:
            self.dismiss(reason)
            return
        hint = self.query_one("#hint", Static)
        if not reason:
            hint.update("It needs a reason. esc cancels.")
        else:
            hint.update(f"{alive}: it seems alive, and works. Press enter again to take the lease away all the same.")
            self._alive = ""

    def action_cancel(self) -> None:
        self.dismiss("")
