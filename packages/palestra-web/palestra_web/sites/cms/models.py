"""The kinds of pages of the museum's website."""

from typing import ClassVar

from django.db import models
from django.utils import timezone
from wagtail.admin.panels import FieldPanel
from wagtail.fields import RichTextField
from wagtail.models import Page

FEATURES = ["h2", "h3", "bold", "italic", "ol", "ul", "link"]
"""What the toolbar of the editor offers."""


class HomePage(Page):
    intro = models.CharField(max_length=250)
    content_panels: ClassVar[list[FieldPanel]] = [*Page.content_panels, FieldPanel("intro")]

    def latest(self) -> "models.QuerySet[ArticlePage]":
        return ArticlePage.objects.live().order_by("-date", "pk")[:5]

    def next(self) -> "models.QuerySet[EventPage]":
        return (
            EventPage.objects.live()
            .filter(date__gte=timezone.now().date())
            .order_by("date", "pk")[:5]
        )


class SectionPage(Page):
    """A list of the pages below it."""

    subpage_types: ClassVar[list[str]] = [
        "cms.ArticlePage",
        "cms.EventPage",
        "cms.PersonPage",
        "cms.TextPage",
    ]
    intro = models.CharField(max_length=250, blank=True)
    content_panels: ClassVar[list[FieldPanel]] = [*Page.content_panels, FieldPanel("intro")]

    def listed(self) -> list[Page]:
        """Pages with a date, the newest first."""
        pages = [page.specific for page in self.get_children().live().order_by("title")]
        return sorted(pages, key=lambda page: str(getattr(page, "date", "")), reverse=True)


class ArticlePage(Page):
    subpage_types: ClassVar[list[str]] = []
    date = models.DateField()
    author = models.CharField(max_length=100)
    summary = models.CharField(max_length=250)
    body = RichTextField(features=FEATURES)
    content_panels: ClassVar[list[FieldPanel]] = [
        *Page.content_panels,
        FieldPanel("date"),
        FieldPanel("author"),
        FieldPanel("summary"),
        FieldPanel("body"),
    ]


class EventPage(Page):
    subpage_types: ClassVar[list[str]] = []
    date = models.DateField()
    starts_at = models.CharField(max_length=20)
    room = models.CharField(max_length=100)
    price = models.CharField(max_length=40)
    body = RichTextField(features=FEATURES)
    content_panels: ClassVar[list[FieldPanel]] = [
        *Page.content_panels,
        *(FieldPanel(name) for name in ("date", "starts_at", "room", "price", "body")),
    ]


class PersonPage(Page):
    subpage_types: ClassVar[list[str]] = []
    role = models.CharField(max_length=100)
    email = models.EmailField()
    telephone = models.CharField(max_length=40, blank=True)
    body = RichTextField(features=FEATURES)
    content_panels: ClassVar[list[FieldPanel]] = [
        *Page.content_panels,
        *(FieldPanel(name) for name in ("role", "email", "telephone", "body")),
    ]


class TextPage(Page):
    subpage_types: ClassVar[list[str]] = []
    body = RichTextField(features=FEATURES)
    content_panels: ClassVar[list[FieldPanel]] = [*Page.content_panels, FieldPanel("body")]
