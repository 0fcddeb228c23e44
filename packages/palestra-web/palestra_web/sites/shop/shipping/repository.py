"""The ways in which the shop sends its goods."""

from decimal import Decimal

from oscar.apps.shipping import methods, repository


class Standard(methods.FixedPrice):
    code = "standard"
    name = "Standard delivery"
    description = "Four to six working days"
    charge_excl_tax = charge_incl_tax = Decimal("4.95")


class Express(methods.FixedPrice):
    code = "express"
    name = "Express delivery"
    description = "The next working day"
    charge_excl_tax = charge_incl_tax = Decimal("12.50")


class Pickup(methods.Free):
    code = "pickup"
    name = "Pick up in store"
    description = "Ready within two hours"


class Repository(repository.Repository):
    methods = (Standard(), Express(), Pickup())
