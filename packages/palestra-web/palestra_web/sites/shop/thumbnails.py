"""Products have no photographs: one drawing stands for all, and a page view writes nothing."""

from types import SimpleNamespace
from typing import Any

from django.templatetags.static import static


class OnePicture:
    """The part of oscar's thumbnailers that its templates use."""

    def generate_thumbnail(self, source: Any, **options: Any) -> SimpleNamespace:
        return SimpleNamespace(url=static("oscar/img/image_not_found.jpg"), width=100, height=100)

    def delete_thumbnails(self, source: Any) -> None:
        pass
