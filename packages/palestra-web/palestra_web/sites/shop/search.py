"""Search without an index: haystack's queries as queries of the database, all words anywhere in a
product's title or description.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Avg, Q, QuerySet
from haystack.backends import BaseEngine, BaseSearchQuery, SearchNode, log_query
from haystack.backends.simple_backend import SimpleSearchBackend
from haystack.models import SearchResult

COLUMNS = {
    "rating": "rating",
    "date_created": "date_created",
    "price": "stockrecords__price",
    "title_exact": "title",
}


class Query(BaseSearchQuery):
    def build_query(self) -> Q:
        return _as_q(self.query_filter)


def _as_q(node: SearchNode) -> Q:
    together = Q()
    for child in node.children:
        if isinstance(child, SearchNode):
            one = _as_q(child)
        else:
            field, kind = node.split_expression(child[0])
            one = _condition(field, kind, child[1])
        together = together | one if node.connector == "OR" else together & one
    return ~together if node.negated else together


def _condition(field: str, kind: str, value: Any) -> Q:
    if field == "content":
        together = Q()
        for word in str(getattr(value, "query_string", value)).split():
            together &= (
                Q(title__icontains=word) | Q(description__icontains=word) | Q(upc__iexact=word)
            )
        return together
    if field == "is_public":
        return Q(is_public=str(value).lower() == "true")
    name = {"category": "categories"}.get(field, field)
    return Q(**{f"{name}__in" if kind == "in" else name: value})


class Backend(SimpleSearchBackend):
    @log_query
    def search(self, query: Q, **options: Any) -> dict[str, Any]:
        from oscar.core.loading import get_model

        found = _sorted(
            get_model("catalogue", "Product").objects.browsable().filter(query),
            query,
            options.get("sort_by"),
        )
        shown = found[options.get("start_offset") or 0 : options.get("end_offset")]
        make = options.get("result_class") or SearchResult
        results = [make("catalogue", "product", product.pk, 0) for product in shown]
        for result, product in zip(results, shown, strict=True):
            result._model, result._object = type(product), product
        return {"results": results, "hits": len(found)}


def _sorted(products: QuerySet[Any], query: Q, sort_by: list[str] | None) -> list[Any]:
    """Sorted as requested. Default: products with the words in their titles first."""
    if sort_by:
        column = COLUMNS[sort_by[0].lstrip("-")]
        products = products.annotate(price_now=Avg("stockrecords__price"))
        column = "price_now" if column == "stockrecords__price" else column
        return list(
            products.order_by(("-" if sort_by[0].startswith("-") else "") + column, "pk").distinct()
        )
    words = [value.lower() for name, value in _leaves(query) if name == "title__icontains"]
    return sorted(
        products.distinct(),
        key=lambda product: (-sum(word in product.title.lower() for word in words), product.pk),
    )


def _leaves(query: Q) -> list[tuple[str, Any]]:
    leaves: list[tuple[str, Any]] = []
    for child in query.children:
        if isinstance(child, Q):
            leaves += _leaves(child)
        else:
            leaves.append(child)
    return leaves


class Engine(BaseEngine):
    backend = Backend
    query = Query
