"""Found by oscar's loader in the place of its own app."""

from oscar.apps.shipping.apps import ShippingConfig as OscarsConfig


class ShippingConfig(OscarsConfig):
    name = "shop.shipping"
