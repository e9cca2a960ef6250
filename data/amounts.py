"""Amounts as people write them: "€1.5m", "1 350,50 €", "500k€", "CHF 1'200", "72.5kg"."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import NamedTuple

_CURRENCIES = {
    "€": "euros", "$": "dollars", "£": "pounds", "¥": "yen", "₹": "rupees", "₽": "roubles",
    "₺": "liras", "₩": "won", "zł": "złotys", "kr": "kroner", "krone": "kroner",
    "eur": "euros", "euro": "euros", "usd": "dollars", "dollar": "dollars", "bucks": "dollars",
    "us dollars": "dollars", "gbp": "pounds", "pound": "pounds", "jpy": "yen", "inr": "rupees",
    "nok": "kroner", "dkk": "kroner", "chf": "francs", "franc": "francs", "pln": "złotys",
    "sek": "kronor", "krona": "kronor",
}  # fmt: skip
_MONEY = frozenset(_CURRENCIES) | frozenset(_CURRENCIES.values())
_SIZES = {
    "k": 10**3, "m": 10**6, "mn": 10**6, "mio": 10**6, "b": 10**9, "bn": 10**9, "tn": 10**12,
    "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12,
}  # fmt: skip
_OF_MONEY = frozenset("kmb")
"""Sizes that mean other things without money: "a run of 5k", "1.5m tall"."""
_SIGN = "[€$£¥₹₽₺₩]"
_CODE = "|".join(
    ["kr", "zł", *sorted(n.upper() for n in _CURRENCIES if re.fullmatch("[a-z]{3}", n))]
)
_SPACE = "[ \u00a0\u202f\u2009]"
_DIGITS = r"\d+(?:[.,'’]\d+|[\u00a0\u202f\u2009]\d{3}(?!\d))*"
_SPACED = r"(?<![\d.,'’])[1-9]\d{0,2}(?: \d{3})+(?!\d)"
"""Pattern of a number with spaces between thousands. It is one number only beside a currency, or
before a unit that stands apart: "1 350 kg", but not "10 100m races"."""
_MONEY_DIGITS = rf"(?:{_SPACED}(?:[.,]\d+)?|{_DIGITS})"
_UNIT = (
    "km/h|m/s|mph|mn|mio|bn|tn|kg|km[²2]|[cm]?m[²³]|km|cm|mm|mg|ml|cl|lbs?|oz|mi|ft|ha|kWh|[kMG]?W|kV|V"
    "|[kMG]?Hz|°C|°F|[kGMT]B|%|[mgl]"
)
_SIZE = r"(?:[kKmMbB]|[mM]n|[mM]io\.?|bn|tn)"
_NO_CENTS = "(?:[.,][-–—])?"
"""What stands for no cents: "49,- €"."""
AMOUNT = (
    rf"[+-]?(?:(?:(?:[A-Z]{{2}})?{_SIGN}|(?:{_CODE})){_SPACE}?{_MONEY_DIGITS}"
    rf"(?:(?:{_UNIT}|[kKMbB])(?!\w))?(?!\w)"
    rf"|{_MONEY_DIGITS}{_NO_CENTS}{_SPACE}?(?:{_SIZE}{_SPACE}?)?{_SIGN}(?!\w)"
    rf"|{_MONEY_DIGITS}[.,][-–—]{_SPACE}?(?:{_CODE})(?!\w)"
    rf"|{_DIGITS}(?:{_UNIT}|[kKM])(?!\w)"
    rf"|[1-9]\d{{0,2}}(?:['’]\d{{3}})+(?:\.\d+)?(?![\w'’]))"
)
"""Pattern of a number with its currency or unit, or with apostrophes between thousands; a match
counts as one word."""
_PLAIN = r"\d+(?:[.,]\d+)*"
BETWEEN = (
    rf"(?:{_SIGN}{_PLAIN}\s?[-–—]\s?{_SIGN}?{_PLAIN}|{_PLAIN}\s[-–—]\s{_PLAIN}(?:{_SPACE}?{_SIGN})?)"
    r"(?![\w-]|[.,]\d)"
)
"""Pattern of a range of numbers ("€30–40", "300 – 400"), which is no amount."""
SPACED_AMOUNT = (
    rf"[+-]?(?:(?:(?:[A-Z]{{2}})?{_SIGN})?{_MONEY_DIGITS}{_SPACE}(?:{_UNIT}|{_CODE})(?!\w)"
    rf"|(?:{_CODE}){_SPACE}?{_DIGITS}(?!\w))"
)
"""Pattern of a number with a unit or a currency's code beside it, as several words."""
_NUMBER = re.compile(rf"[-+−]?(?:(?<!\d)\.\d+|{_DIGITS})")


class Amount(NamedTuple):
    """A number and its unit in one spelling ("euros"), "" if it has none."""

    number: Decimal
    unit: str


def read_amount(text: str) -> Amount | None:
    """Return the amount of a text that has one number, else None.

    "1.350" is 1350 if it is money, which nobody writes with three decimals, else 1.35. "1 350" is a
    number if nothing but a currency, or a unit that stands apart, is beside it. For a number that
    cannot be read ("€12.34.5") the result is None.
    """
    joined = re.sub(_SPACED, lambda spaced: spaced[0].replace(" ", "\u00a0"), text)
    if joined != text:
        amount = read_amount(joined)
        if amount is None or amount.unit in _CURRENCIES.values():
            return amount
        return amount if re.search(rf"\d{_SPACE}(?:{_UNIT})$", text) else None
    numbers = list(_NUMBER.finditer(text))
    if len(numbers) != 1:
        return None
    [match] = numbers
    before = text[: match.start()].strip(" .")
    before = before if before[-1:] not in _MONEY else before[-1:]  # "US$"
    after = re.sub(f"^{_NO_CENTS}", "", text[match.end() :]).strip(" .")
    after = re.sub(rf"^({_SIZE}){_SPACE}?(?={_SIGN})", r"\1 ", after)
    words = after.lower().split()
    size = words.pop(0).rstrip(".") if words and words[0].rstrip(".") in _SIZES else ""
    unit = " ".join([before.lower(), *words]).strip()
    is_money = not _MONEY.isdisjoint(re.findall(rf"{_SIGN}|\w+", unit))
    if size in _OF_MONEY and not is_money:
        words.insert(0, size)  # metres, or kilometres
        unit, size = " ".join([before.lower(), *words]).strip(), ""
    digits = _plain_digits(match[0].lstrip("-+−"), is_money)
    if digits is None:
        return None
    sign = -1 if match[0][0] in "-−" else 1
    return Amount(sign * _SIZES.get(size, 1) * Decimal(digits), _CURRENCIES.get(unit, unit))


def _plain_digits(text: str, is_money: bool) -> str | None:
    """Return a number with only a decimal point as a mark; None if the text is not a number.

    "0042" is a code, no number.
    """
    if re.match(r"0\d", text):
        return None
    *whole, last = re.split(r"\D", text)
    marks = re.findall(r"\D", text)
    if not marks:
        return text
    *between, mark = marks
    if len(last) == 3 and (mark != "." or between or is_money) and len({*marks}) == 1:
        whole, between, last = [*whole, last], marks, ""
    elif mark not in ".," or mark in between:
        return None
    is_grouped = all(len(group) == 3 for group in whole[1:]) and len({*between}) <= 1
    if between and not (is_grouped and len(whole[0]) <= 3):
        return None
    return f"{''.join(whole)}.{last}" if last else "".join(whole)
