"""Spirit at `/`, with a search that reads the instance's own database and not an index that all
instances would share.
"""

import spirit.urls
from django.contrib.auth.decorators import login_required
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import include, path
from spirit.core.conf import settings
from spirit.search.forms import AdvancedSearchForm
from spirit.topic.models import Topic

MOST = 20
"""Results; spirit's template draws its paginator from an index."""


@login_required
def search(request: HttpRequest) -> HttpResponse:
    """Topics that have all words in their title or in one of their posts, those with newer posts
    first.
    """
    query = request.GET.get("q", "").strip()
    form = AdvancedSearchForm(request.GET if query else None)
    if len(query) < settings.ST_SEARCH_QUERY_MIN_LEN:
        return render(request, "spirit/search/search.html", {"form": form, "query": "", "page": []})
    found = _found(query)
    if form.is_valid() and form.cleaned_data["category"]:
        found = found.filter(category__in=form.cleaned_data["category"])
    page = [
        {
            "pk": topic.pk,
            "fields": {
                "slug": topic.slug,
                "title": topic.title,
                "main_category_name": topic.category.title,
                "comment_count": topic.comment_count,
                "last_active": topic.last_active,
            },
        }
        for topic in found[:MOST]
    ]
    return render(request, "forum/search.html", {"form": form, "query": query, "page": page})


def _found(query: str) -> "QuerySet[Topic]":
    topics = (
        Topic.objects.visible()
        .filter(category__is_private=False)
        .select_related("category")
        .order_by("-last_active", "pk")
    )
    for word in query.split():
        topics = topics.filter(Q(title__icontains=word) | Q(comment__comment__icontains=word))
    return topics.distinct()


urlpatterns = [path("search/", search), path("", include(spirit.urls))]
