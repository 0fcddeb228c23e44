"""Straight lines on the globe."""

import math

EARTH_KM = 6371.0088
"""The mean radius."""
KM_PER_MILE = 1.609344
WINDS = ("north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west")

Point = tuple[float, float]
"""Latitude and longitude in degrees."""


def distance_km(start: Point, end: Point) -> float:
    """The haversine distance."""
    (lat_a, lon_a), (lat_b, lon_b) = (_radians(start), _radians(end))
    half = (
        math.sin((lat_b - lat_a) / 2) ** 2
        + math.cos(lat_a) * math.cos(lat_b) * math.sin((lon_b - lon_a) / 2) ** 2
    )
    return 2 * EARTH_KM * math.asin(min(1.0, math.sqrt(half)))


def bearing(start: Point, end: Point) -> float:
    """The direction in which the shortest way sets out, in degrees from north."""
    (lat_a, lon_a), (lat_b, lon_b) = (_radians(start), _radians(end))
    east = math.sin(lon_b - lon_a) * math.cos(lat_b)
    north = math.cos(lat_a) * math.sin(lat_b) - math.sin(lat_a) * math.cos(lat_b) * math.cos(
        lon_b - lon_a
    )
    return math.degrees(math.atan2(east, north)) % 360


def wind(degrees: float) -> str:
    """The nearest of the eight winds."""
    return WINDS[round(degrees / 45) % 8]


def _radians(point: Point) -> Point:
    return math.radians(point[0]), math.radians(point[1])
