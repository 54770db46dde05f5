"""The screen of ``leasehold top``. The store is asked in a thread, so that keys always work; what came of it arrives as
a message. A store that is away is a line: the last picture stays."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.message import Message
from textual.timer import Timer
from textual.widgets import DataTable, Footer, Input, Static

from leasehold.cli.clear import nobody_gets
from leasehold.cli.inspection import in_use
from leasehold.cli.liveness import renewed_lately
from leasehold.cli.output import printable
from leasehold.cli.terminal import elapsed
from leasehold.cli.top import actions
from leasehold.cli.top.dialogs import AskClear, AskRevoke, Details
from leasehold.cli.top.overview import NEXT, Rates, Sums, cells, chosen, cut, details, headline, sums, urgency
from leasehold.coordinator import Leasehold
from leasehold.errors import LeaseholdError
from leasehold.primitives.inspection import Inspection

HEADS = ("RESOURCE", "HOLDER", "AGE", "EXPIRES IN", "WAITING")
FIXED = (7, 16, 10)  # columns of the last three
LEAST_NAME, LEAST_HOLDER, MOST_HOLDER = 12, 10, 30
MOST_ROWS = 500  # that are drawn; more are found with a filter
MESSAGE_SECONDS = 10.0  # for which a sentence about what a key did is shown


class Looked(Message):
    """What the store lists."""

    def __init__(self, found: list[Inspection], round_trip: float) -> None:
        super().__init__()
        self.found = found
        self.round_trip = round_trip


class Away(Message):
    """The store did not answer."""

    def __init__(self, error: LeaseholdError) -> None:
        super().__init__()
        self.error = error


class Acted(Message):
    """What came of a revoke or a clear."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class Rows(DataTable[Text]):
    """A table of which rows are selected: Home and End go to the first and the last of them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("home", "scroll_top", "First", show=False),
        Binding("end", "scroll_bottom", "Last", show=False),
    ]


class Filter(Input):
    """A line to type a filter into. Letters are text there, so the other keys are not shown."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "submit", "Keep it", key_display="enter")]


class Top(App[None]):
    """Lists what is held, again and again."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layout: vertical; }
    .line { height: 1; padding: 0 1; }
    #place { text-style: bold; }
    #selected { height: auto; max-height: 4; }
    #message { color: $text-warning; height: auto; min-height: 1; max-height: 3; }
    #away { color: $text-error; text-style: bold; display: none; height: auto; max-height: 4; }
    #away.shown { display: block; }
    #filter { display: none; height: 1; border: none; padding: 0 1; }
    #filter.shown { display: block; }
    DataTable { height: 1fr; }
    ModalScreen { align: center middle; }
    .dialog { width: 76; max-width: 100%; height: auto; max-height: 20; padding: 0 1; }
    .dialog { border: round $primary; background: $surface; }
    .hint { text-style: dim; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("i", "inspect", "Inspect"),
        Binding("r", "revoke", "Revoke"),
        Binding("c", "clear", "Clear"),
        Binding("s", "sort", "Sort"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("a", "all", "All"),
        Binding("p", "pause", "Pause"),
        Binding("q,ctrl+c", "quit", "Quit", key_display="q"),
        Binding("escape", "unfilter", "Show all", key_display="esc"),
    ]

    def __init__(
        self, hold: Leasehold, where: str, pattern: str, order: str, every: float, everything: bool = False
    ) -> None:
        super().__init__()
        self.trouble: LeaseholdError | None = None  # why the store was never reached
        self._hold = hold
        self._where = where
        self._pattern = pattern
        self._order = order
        self._every = every
        self._text = ""  # of the filter
        self._rates = Rates()
        self._everything = everything  # what is free and has a history, too
        self._listed: list[Inspection] = []
        self._found: list[Inspection] = []  # those of them that may be shown
        self._shown: list[Inspection] = []
        self._sums: Sums | None = None  # before the first look
        self._round_trip = 0.0
        self._paused = False
        self._looking = False
        self._width = 80  # until it is known
        # Kept here: while a dialog is open, a query would look for them in the dialog.
        self._table = Rows(cursor_type="row")
        self._filter = Filter(placeholder="a part of a name or of a holder, or a pattern with * and ?", id="filter")
        names = ("place", "headline", "away", "message", "selected")
        self._lines = {name: Static(id=name, classes="line", markup=False) for name in names}
        self._message_timer: Timer | None = None

    # ------------------------------------------------------------ the screen

    def compose(self) -> ComposeResult:
        yield self._lines["place"]
        yield self._lines["headline"]
        yield self._lines["away"]
        yield self._lines["message"]
        yield self._table
        yield self._filter
        yield self._lines["selected"]
        yield Footer(compact=True)

    def on_mount(self) -> None:
        self._table.focus()
        self.look()

    def on_resize(self, resized: Resize) -> None:
        """The columns have other widths by now."""
        self._width = resized.size.width
        table = self._table
        table.clear(columns=True)
        for head, columns in zip(HEADS, self._columns(), strict=True):
            table.add_column(head, width=columns)
        self._line("place", cut(f"leasehold top  {printable(self._where)}", self._width - 2))
        self._draw()

    def _columns(self) -> tuple[int, ...]:
        """The widths of all columns: names get what the others leave, and holders a third of it."""
        left = self._width - sum(FIXED) - 2 * len(HEADS)
        holder = min(max(left // 3, LEAST_HOLDER), MOST_HOLDER)
        return (max(left - holder, LEAST_NAME), holder, *FIXED)

    def _line(self, name: str, text: str) -> None:
        self._lines[name].update(text)

    def _say(self, text: str) -> None:
        """What a key did, or why it did nothing; an empty text with the next key. It goes after some seconds."""
        if self._message_timer is not None:
            self._message_timer.stop()
        self._line("message", text)
        self._message_timer = self.set_timer(MESSAGE_SECONDS, lambda: self._line("message", "")) if text else None

    def _draw(self) -> None:
        """The cursor stays on its resource, wherever that is by now."""
        table = self._table
        before = self._selected()
        self._shown = chosen(self._found, self._order, self._text)[:MOST_ROWS]
        name, holder, *_ = self._columns()
        table.clear()
        for one in self._shown:
            colour = urgency(one)
            first, who, since, left, waits = cells(one, name, holder)
            table.add_row(Text(first), Text(who), Text(since), Text(left, colour), Text(waits), key=one.resource)
        names = [one.resource for one in self._shown]
        if before is not None and before.resource in names:
            table.move_cursor(row=names.index(before.resource))
        known = self._sums
        told = headline(known, self._round_trip, self._order, self._text, self._paused) if known else "looking ..."
        self._line("headline", told)
        self._draw_selected()

    def _selected(self) -> Inspection | None:
        row = self._table.cursor_row
        return self._shown[row] if 0 <= row < len(self._shown) else None

    def _draw_selected(self) -> None:
        """The whole name of what is selected: the table may have cut it."""
        one, more = self._selected(), len(self._found) - len(self._shown)
        hidden = f"   ({more} more)" if more else ""
        nothing = "nothing matches" if self._found else "nothing is held" if self._sums else ""
        self._line("selected", f"{printable(one.resource) if one else nothing}{hidden}")

    @on(DataTable.RowHighlighted)
    def selected_another(self) -> None:
        """The cursor has moved."""
        self._draw_selected()

    # ------------------------------------------------------------ looking

    def look(self) -> None:
        """Ask the store, unless that is under way."""
        if not self._looking and not self._paused:
            self._looking = True
            self.run_worker(self._ask, thread=True, group="look")

    def _ask(self) -> None:
        try:
            round_trip = self._hold.ping()
            self.post_message(Looked(list(self._hold.scan(self._pattern)), round_trip))
        except LeaseholdError as error:
            self.post_message(Away(error))

    @on(Looked)
    def looked(self, message: Looked) -> None:
        """A new picture. It may come when the screen is gone."""
        if not self.screen_stack:
            return
        self._listed, self._round_trip, self.trouble = message.found, message.round_trip, None
        self._sums = sums(self._listed, self._rates.add(self._listed, time.monotonic()))
        self._lines["away"].remove_class("shown")
        self._choose()
        self._draw()
        self._show_again()
        self._look_later()

    @on(Away)
    def away(self, message: Away) -> None:
        """The last picture stays."""
        if self._sums is None:
            self.trouble = message.error
        line = self._lines["away"]
        line.add_class("shown")
        line.update(printable(f"The store is unavailable, and is tried again: {message.error}"))
        self._look_later()

    def _choose(self) -> None:
        self._found = [one for one in self._listed if self._everything or in_use(one)]

    def _look_later(self) -> None:
        self._looking = False
        self.set_timer(self._every, self.look)

    def _show_again(self) -> None:
        """An open dialog with details is kept up to date."""
        if isinstance(self.screen, Details):
            resource = self.screen.resource
            seen = next((one for one in self._found if one.resource == resource), None)
            free = f"{printable(resource)}\nis free by now"
            self.screen.show(free if seen is None else details(seen, self._where))

    # ------------------------------------------------------------ keys

    @on(DataTable.RowSelected)
    def action_inspect(self) -> None:
        """Show all that is known of what is selected."""
        self._say("")
        one = self._selected()
        if one is not None:
            self.push_screen(Details(one.resource, details(one, self._where)))

    def action_sort(self) -> None:
        """The next order."""
        self._say("")
        self._order = NEXT[self._order]
        self._draw()

    def action_all(self) -> None:
        """Also what is free and has a history, or no longer."""
        self._everything = not self._everything
        said = "What is free and has a history is shown, too." if self._everything else "Only what is in use is shown."
        self._say(said)
        self._choose()
        self._draw()

    def action_pause(self) -> None:
        """Stop looking, or go on."""
        self._say("")
        self._paused = not self._paused
        self._draw()
        self.look()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        """Whether a key does something now, and is shown."""
        typing = self._filter.has_focus
        return not typing if action == "filter" else action != "unfilter" or typing or bool(self._text)

    def action_filter(self) -> None:
        """Type a part of a name: only what has it stays."""
        self._say("")
        line = self._filter
        line.add_class("shown")
        line.focus()

    def action_unfilter(self) -> None:
        """Show all again."""
        line = self._filter
        line.value = ""
        line.remove_class("shown")
        self._table.focus()

    @on(Input.Changed, "#filter")
    def filtered(self, changed: Input.Changed) -> None:
        """With each letter."""
        self._text = changed.value.strip()
        self._draw()
        self.refresh_bindings()

    @on(Input.Submitted, "#filter")
    def leave_filter(self) -> None:
        """Back to the table; the filter stays."""
        self._filter.remove_class("shown")
        self._table.focus()

    # ------------------------------------------------------------ what operators do

    def action_revoke(self) -> None:
        """Ask the holder of what is selected to release it; all of them, if there are several."""
        one = self._selected()
        if one is None or one.holder is None:
            self._say("Nobody holds it: there is nobody to ask.")
            return
        self._say("")
        resource, fences = one.resource, [holder.fence for holder in one.holders]
        owners = printable(one.holder.owner) if len(fences) == 1 else f"all {len(fences)} holders"
        text = f"Ask {owners} to release {printable(resource)}?\nIt may go on; c takes the lease away."

        def answered(answer: bool | None) -> None:
            if answer:
                self._act(lambda: actions.revoke(self._hold, resource, fences))

        self.push_screen(AskRevoke(text), answered)

    def action_clear(self) -> None:
        """Take the lease that is selected away."""
        one = self._selected()
        if one is None or one.holder is None:
            self._say("Nobody holds it: there is nothing to clear.")
            return
        if len(one.holders) > 1:
            name = shlex.quote(printable(one.resource))
            self._say(f"Several hold it, and i shows their fences: leasehold clear {name} --expect-fence FENCE")
            return
        self._say("")
        holder, resource, fence = one.holder, one.resource, one.holder.fence
        text = (
            f"Take {printable(resource)} away from {printable(holder.owner)} (fence {fence})?\n"
            f"Its lease ends in {elapsed(holder.expires_in)} by itself unless it is renewed. "
            f"{nobody_gets(holder, 'that long')} in any case, because the holder may go on working."
        )
        renewed = holder.ttl - holder.expires_in
        alive = f"Its holder renewed it {elapsed(renewed)} ago" if renewed_lately(holder) else ""

        def answered(reason: str | None) -> None:
            if reason:
                self._act(lambda: actions.clear(self._hold, resource, holder, reason))

        self.push_screen(AskClear(text, alive), answered)

    def _act(self, action: Callable[[], str]) -> None:
        """In a thread. Its sentence is shown, and the next look is due at once."""
        self.run_worker(lambda: self.post_message(Acted(action())), thread=True, group="act")

    @on(Acted)
    def acted(self, message: Acted) -> None:
        """Show what came of it."""
        self._say(message.text)
        self.look()
