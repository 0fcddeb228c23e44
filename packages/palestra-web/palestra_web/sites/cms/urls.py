"""The website at `/`, its editors at `/admin/`."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import include, path
from wagtail import urls as wagtail_urls
from wagtail.admin import urls as wagtailadmin_urls
from wagtail.documents import urls as wagtaildocs_urls
from wagtail.models import Page


def search(request: HttpRequest) -> HttpResponse:
    """Published pages that have the words in them."""
    query = request.GET.get("q", "").strip()
    found = Page.objects.live().search(query)[:20] if query else []
    return render(request, "cms/search.html", {"query": query, "found": found})


urlpatterns = [
    path("admin/", include(wagtailadmin_urls)),
    path("documents/", include(wagtaildocs_urls)),
    path("search/", search, name="search"),
    path("", include(wagtail_urls)),
]
