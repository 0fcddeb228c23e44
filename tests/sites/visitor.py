"""Somebody who uses the shop without a browser."""

import http.client
import re
from urllib.parse import urlencode


class Visitor:
    """A customer in an instance, logged in. Requests go over one connection each."""

    def __init__(self, instance, user="clara.moreau@example.com"):
        self.instance = instance
        self.port = instance.sites.sites["shop"]["port"]
        self.cookies = {cookie["name"]: cookie["value"] for cookie in instance.login("shop", user)}

    def ask(self, path, form=None):
        """The status, where it leads, and the page."""
        headers = {
            "Host": "shop.test",
            "X-Instance": self.instance.id,
            "Cookie": "; ".join(f"{k}={v}" for k, v in self.cookies.items()),
        }
        if form is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(
            "GET" if form is None else "POST",
            path,
            None if form is None else urlencode(form),
            headers,
        )
        answer = connection.getresponse()
        page = answer.read().decode()
        for cookie in answer.msg.get_all("Set-Cookie") or []:
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
        connection.close()
        return answer.status, answer.getheader("Location"), page

    def put_into_cart(self, product):
        _, path, _ = self.ask(f"/catalogue/any_{product}/")
        _, _, page = self.ask(path)
        token = re.search(r'csrfmiddlewaretoken" value="(\w+)"', page)[1]
        status, _, page = self.ask(
            f"/basket/add/{product}/", {"csrfmiddlewaretoken": token, "quantity": 1}
        )
        assert status == 302, page

    def cart(self):
        query = (
            "SELECT l.product_id AS id FROM basket_line l "
            "JOIN basket_basket b ON b.id = l.basket_id WHERE b.status = 'Open'"
        )
        return {row["id"] for row in self.instance.query("shop", query)}
