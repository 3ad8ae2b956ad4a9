"""How dates and times look in the languages that prompts are written in."""

import re

# English, German, French, Spanish, Italian, Portuguese, Dutch; longer names before what they begin with.
_MONTHS = (
    "january february march april may june july august september october november december januar februar märz "
    "mai juni juli oktober dezember janvier février mars avril juin juillet août septembre octobre novembre "
    "décembre enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre gennaio "
    "febbraio aprile maggio giugno luglio settembre ottobre dicembre janeiro fevereiro março maio junho julho "
    "setembro outubro novembro dezembro januari februari maart mei augustus jan feb mar apr jun jul aug sept sep "
    "oct okt nov dec dez"
)
_DAYS = (
    "monday tuesday wednesday thursday friday saturday sunday montag dienstag mittwoch donnerstag freitag samstag "
    "sonntag lundi mardi mercredi jeudi vendredi samedi dimanche lunes martes miércoles jueves viernes sábado "
    "domingo lunedì martedì mercoledì giovedì venerdì sabato domenica segunda-feira terça-feira quarta-feira "
    "quinta-feira sexta-feira maandag dinsdag woensdag donderdag vrijdag zaterdag zondag mon tues tue wed thurs "
    "thu fri sat sun"
)
MONTH = f"(?i:{'|'.join(_MONTHS.split())})"
DAY = f"(?i:{'|'.join(_DAYS.split())})"
_TIME = (
    r"\d{1,2}[:h]\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?: ?[AaPp]\.?[Mm]\b\.?)?"
    r"(?: ?(?:Z|UTC|GMT|CES?T|E[SD]T|P[SD]T|Uhr)\b| ?[+-]\d{2}:?\d{2}\b)?"
)
_AT = r"(?:,? at |,? um |,? à |,? a las |,? |T)"
_DATES = (
    rf"\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}(?:{_AT}{_TIME})?",
    rf"(?:\d{{1,2}}[./-]\d{{1,2}}[./-]\d{{4}}|\d{{1,2}}/\d{{1,2}}/\d{{2}}|\d\d\.\d\d\.\d\d)(?:{_AT}{_TIME})?",
    rf"(?:{DAY},? (?:the |der |den |le )?)?{MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?(?:{_AT}{_TIME})?",
    rf"(?:{DAY},? (?:the |der |den |le )?)?\d{{1,2}}(?:st|nd|rd|th|er|º)?\.?(?: of| de)? {MONTH}\.?"
    rf"(?:(?:,? | de | del )\d{{4}})?(?:{_AT}{_TIME})?",
    rf"{MONTH}(?: de)? \d{{4}}",
    rf"{_TIME}|\d{{1,2}} ?(?:[ap]\.?m\.?|o['\u2019]clock|Uhr)",
    r"\d{8}T\d{6}Z?",
    rf"{DAY}",
)
_JAPANESE_OR_CHINESE = (
    r"\d{4} ?年 ?\d{1,2} ?月(?: ?\d{1,2} ?日)?(?:\W?[日月火水木金土一二三四五六](?:曜日?)?\W?)?"
    r"(?: ?\d{1,2}[:時时点]\d{0,2}分?)?",
    r"[日月火水木金土]曜日?",
    r"(?:星期|周|礼拜)[一二三四五六日天]",
    r"\d{1,2}[時时点]\d{1,2}分?",
)
CLOCK = re.compile(rf"(?<![\w-])(?:{'|'.join(_DATES)})(?!\w|[.:]\d)|{'|'.join(_JAPANESE_OR_CHINESE)}")
"""A date, a time, both, or the name of a day, as people and programs write them."""
