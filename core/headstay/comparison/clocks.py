"""How dates and times look in the languages that prompts are written in.

Names of months and days are listed for the languages that prompts are written in most; a day, a word and a year in a
row are a date in any other.
"""

import re

# English, German, French, Spanish, Italian, Portuguese, Dutch, Scandinavian, Russian, Ukrainian, Polish; longer names
# before what they begin with.
_MONTHS = (
    "january february march april may june july august september october november december januar februar märz mai "
    "juni juli oktober dezember janvier février mars avril juin juillet août septembre octobre novembre décembre "
    "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre gennaio febbraio aprile "
    "maggio giugno luglio settembre ottobre dicembre janeiro fevereiro março maio junho julho setembro outubro "
    "novembro dezembro januari februari maart mei augustus marts maj augusti desember января февраля марта апреля мая "
    "июня июля августа сентября октября ноября декабря січня лютого березня квітня травня червня липня серпня вересня "
    "жовтня листопада грудня stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października "
    "listopada grudnia jan feb mar apr jun jul aug sept sep oct okt nov dec dez"
)
_DAYS = (
    "monday tuesday wednesday thursday friday saturday sunday montag dienstag mittwoch donnerstag freitag samstag "
    "sonntag lundi mardi mercredi jeudi vendredi samedi dimanche lunes martes miércoles jueves viernes sábado domingo "
    "lunedì martedì mercoledì giovedì venerdì sabato domenica segunda-feira terça-feira quarta-feira quinta-feira "
    "sexta-feira maandag dinsdag woensdag donderdag vrijdag zaterdag zondag mandag tirsdag onsdag torsdag fredag "
    "lørdag søndag måndag tisdag lördag söndag понедельник вторник среда четверг пятница суббота воскресенье "
    "понеділок вівторок середа четвер пʼятниця субота неділя poniedziałek wtorek środa czwartek piątek sobota "
    "niedziela mon tues tue wed thurs thu fri sat sun"
)
MONTH = f"(?i:{'|'.join(_MONTHS.split())})"
DAY = f"(?i:{'|'.join(_DAYS.split())})"
_TIME = (
    r"\d{1,2}[:h]\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?: ?[AaPp]\.?[Mm]\b\.?)?"
    r"(?: ?(?:Z|UTC|GMT|CES?T|E[SD]T|P[SD]T|Uhr)\b| ?[+-]\d{2}:?\d{2}\b)?"
)
_AT = r"(?:,? at |,? um |,? à |,? a las |,? |T)"
_OF_DAY = rf"(?:{DAY},? (?:the |der |den |le )?)?"
# In any language: "29 listopada 2026", "ngày 29 tháng 11 năm 2026"; combining marks are no word characters.
_ANY_MONTH = r"[^\s\d.,;:!?()\[\]/-]{2,14}"
_ANY_DATE = rf"\d{{1,2}}\.? (?:de |of )?{_ANY_MONTH}\.?,?(?: \d{{1,2}})?(?: de| năm)? (?:20|25)\d\d"
_DATES = (
    rf"\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}(?:{_AT}{_TIME})?",
    rf"(?:\d{{1,2}}[./-]\d{{1,2}}[./-]\d{{4}}|\d{{1,2}}/\d{{1,2}}/\d{{2}}|\d\d\.\d\d\.\d\d)(?:{_AT}{_TIME})?",
    rf"{_OF_DAY}{MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?(?:{_AT}{_TIME})?",
    rf"{_OF_DAY}\d{{1,2}}(?:st|nd|rd|th|er|º)?\.?(?: of| de)? {MONTH}\.?"
    rf"(?:(?:,? | de | del )\d{{4}})?(?:{_AT}{_TIME})?",
    rf"{_ANY_DATE}(?:{_AT}{_TIME})?",
    rf"{MONTH}(?: de)? \d{{4}}|\d{{1,2}}-{MONTH}-\d{{2,4}}",
    rf"{_TIME}|\d{{1,2}} ?(?:[ap]\.?m\.?|o['\u2019]clock|Uhr)",
    r"\d{8}[T_-]?\d{6}Z?",
    rf"{DAY}",
)
_HALF_OF_DAY = r"(?:上午|下午|午前|午後|오전|오후)"
_EAST_ASIAN_TIME = rf"(?:{_HALF_OF_DAY} ?)?\d{{1,2}} ?[:時时点시](?: ?\d{{1,2}}[分분]?)?"
_EAST_ASIAN = (
    r"\d{1,4} ?[年년] ?\d{1,2} ?[月월](?: ?\d{1,2} ?[日일])?"
    rf"(?:\W?[日月火水木金土一二三四五六일월화수목금토](?:曜日?|요일)?\W?)?(?: ?{_EAST_ASIAN_TIME})?",
    r"[日月火水木金土]曜日?|[일월화수목금토]요일",
    r"(?:星期|周|礼拜)[一二三四五六日天]",
    rf"{_HALF_OF_DAY} ?\d{{1,2}}[:時时点시](?: ?\d{{1,2}}[分분]?)?|\d{{1,2}}[時时点시] ?\d{{1,2}}[分분]?",
)
CLOCK = re.compile(rf"(?<![\w-])(?:{'|'.join(_DATES)})(?!\w|[.:]\d)|{'|'.join(_EAST_ASIAN)}")
"""A date, a time, both, or the name of a day, as people and programs write them."""

DAY_AND_DATE = re.compile(rf"(?<!\w)[^\W\d_]{{2,14}},? {_ANY_DATE}(?!\w)")
"""A word and a date behind it, which may be the name of the day in any language."""
