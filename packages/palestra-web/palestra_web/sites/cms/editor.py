"""The editor of rich text, for people who are quicker than people."""

from typing import Any

from wagtail.admin.rich_text import DraftailRichTextArea


class PromptEditor(DraftailRichTextArea):
    """Draftail commits edits after a quarter of a second. Publishing earlier would publish the old
    text.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.options |= {"stateSaveInterval": 10, "ariaLabel": "Text"}
