"""Word lists of the vetoes: short, English, and only words that an embedder is known to take for one another.

A group has poles, divided by `|`; the words of one pole stand for the same thing, two poles never do. Words are given
in their base form and compared by stem.
"""

from types import MappingProxyType

from headstay.semantic.reasons import Reason


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _numbered(words: str, first: int, step: int = 1) -> dict[str, int]:
    return {word: (first + at) * step for at, word in enumerate(words.split())}


OPPOSITES = (
    "enable activate on|disable deactivate off",
    "start begin open|stop end finish quit close cancel terminate",
    "increase raise|decrease reduce lower",
    "more extra|less fewer",
    "most|least",
    "maximum max highest largest biggest|minimum min lowest smallest",
    "better|worse",
    "best|worst",
    "higher|lower",
    "bigger larger greater|smaller",
    "longer|shorter",
    "faster|slower",
    "older|younger newer",
    "earlier|later",
    "cheaper|costlier dearer",
    "oldest earliest|newest latest youngest",
    "high|low",
    "big large|small little",
    "long|short",
    "fast quick|slow",
    "hot|cold",
    "easy|hard difficult",
    "good|bad",
    "right|wrong",
    "true|false",
    "safe|dangerous unsafe",
    "legal|illegal",
    "allow permit|forbid prohibit deny block ban prevent",
    "accept approve|reject decline refuse deny",
    "include cover|exclude except excluding",
    "add|remove delete subtract",
    "create|delete destroy",
    "cancel|renew keep",
    "install|uninstall",
    "upload|download",
    "import|export",
    "encrypt|decrypt",
    "encode|decode",
    "compress|decompress extract",
    "upgrade|downgrade",
    "mute silence|unmute",
    "lock freeze|unlock unfreeze",
    "show display|hide",
    "send|receive",
    "deposit|withdraw",
    "buy purchase|sell",
    "borrow|lend",
    "gain profit|loss lose",
    "win|lose",
    "pass|fail",
    "love like|hate dislike",
    "push|pull",
    "join|leave",
    "enter|exit leave",
    "arrive arrival|depart departure",
    "login|logout",
    "before|after|within",
    "taller|shorter",
    "heavier|lighter",
    "richer|poorer",
    "stronger|weaker",
    "wider|narrower",
    "deeper|shallower",
    "warmer hotter|colder cooler",
    "nearer closer nearest closest|farther further farthest furthest",
    "tallest|shortest",
    "heaviest|lightest",
    "longest|shortest",
    "fastest|slowest",
    "strongest|weakest",
    "richest|poorest",
    "cheapest|costliest dearest priciest",
    "grant give|revoke withdraw",
    "undo|redo",
    "happy glad|sad",
    "above over|below under beneath",
    "up|down",
    "inside indoors|outside outdoors",
    "front|back rear",
    "top|bottom",
    "left|right",
    "inbound incoming|outbound outgoing",
    "input|output",
    "internal|external",
    "domestic local|international foreign abroad overseas",
    "weekday workday|weekend",
    "public|private",
    "open|closed",
    "always|never",
    "all every everything|none nothing",
    "all every|some",
    "same|different",
    "old|new",
    "old|young",
    "first|last",
    "early|late",
    "full|empty",
    "online|offline",
    "active|inactive",
    "ascending|descending",
    "horizontal|vertical",
    "positive|negative",
    "plus|minus",
    "multiply|divide",
    "singular|plural",
    "synonym|antonym opposite",
    "advantage benefit pro|disadvantage drawback con",
    "cause|cure",
    "cause|effect",
    "question|answer",
    "used taken spent|left remaining",
    "used|unused",
    "give|get",
    "alive living|dead",
    "win|defeat",
    "pros|cons",
    "import|export",
    "hire|fire",
    "attach|detach",
    "connect|disconnect",
    "expand|collapse",
    "sync|unsync",
    "fill|drain empty",
    "prepaid|postpaid",
    "refundable|nonrefundable",
    "vegetarian vegan|meat",
    "compatible|incompatible",
)
"""Pairs that ask for opposite things."""

ALTERNATIVES = (
    "physical|virtual",
    "debit|credit|prepaid",
    "visa|mastercard|amex|paypal|venmo",
    "personal|business|corporate",
    "checking|savings|brokerage|pension",
    "free|basic|standard|premium|pro|enterprise",
    "bronze|silver|gold|platinum|diamond",
    "economy|business|first",
    "express|standard|overnight",
    "daily|weekly|biweekly|monthly|quarterly|yearly annual annually",
    "breakfast|lunch|dinner supper",
    "morning|noon|afternoon|evening|night",
    "spring|summer|autumn fall|winter",
    "north|south|east|west",
    "northern|southern|eastern|western",
    "red|orange|yellow|green|blue|purple|pink|brown|black|white|grey gray",
    "small|medium|large",
    "windows|macos mac|linux|ubuntu|android|ios iphone ipad",
    "chrome|firefox|safari|edge",
    "python|java|javascript|typescript|rust|golang|ruby|php|kotlin|swift|scala|perl|cpp",
    "mysql|postgres postgresql|sqlite|oracle|mongodb",
    "aws|azure|gcp",
    "admin administrator|user|guest|owner",
    "student|teacher",
    "employee|employer|manager",
    "doctor|nurse|patient",
    "buyer customer|seller vendor merchant",
    "tenant|landlord",
    "sender|recipient receiver",
    "borrower|lender",
    "plaintiff|defendant",
    "husband|wife",
    "father dad|mother mom mum",
    "brother|sister",
    "son|daughter",
    "boy|girl",
    "male man men|female woman women",
    "king|queen",
    "uncle|aunt",
    "child children kid|adult|senior",
    "dog|cat",
    "solid|liquid|gas",
    "sunrise|sunset",
    "bus|train|plane flight|car|taxi|ferry",
    "phone|tablet|laptop|desktop",
    "email|sms|phone",
    "federal|state|municipal",
    "gross|net",
    "wired|wireless",
    "digital|analog",
    "mean average|median",
    "sum|product|difference",
    "http|https|ftp|ssh",
    "json|xml|yaml|csv",
    "png|jpg jpeg|gif|svg|pdf",
    "dev development|staging|prod production",
    "english|french|german|spanish|italian|portuguese|dutch|polish|russian|chinese|mandarin|japanese|korean|arabic|"
    "hindi|turkish|swedish|danish|norwegian|finnish|greek|hebrew|thai|vietnamese|ukrainian|czech|hungarian",
    "england|scotland|ireland|wales|france|germany|spain|italy|portugal|netherlands|belgium|switzerland|austria|"
    "poland|russia|ukraine|china|japan|korea|india|pakistan|thailand|vietnam|indonesia|australia|canada|mexico|"
    "brazil|argentina|chile|egypt|nigeria|kenya|turkey|greece|sweden|norway|denmark|finland|israel|iran|iraq|"
    "usa america|uk britain",
    "europe|asia|africa|oceania",
    "london|paris|berlin|madrid|rome|vienna|tokyo|beijing|moscow|dublin|amsterdam|lisbon|athens|cairo|sydney|"
    "toronto|chicago|boston|seattle|dallas|houston|miami|denver|atlanta|phoenix",
    "mercury|venus|earth|mars|jupiter|saturn|uranus|neptune|pluto",
    "ibuprofen|paracetamol acetaminophen|aspirin",
    "protein|fat|carbs carbohydrate|sugar|fiber|sodium",
    "tax|tip",
    "rent|mortgage",
)
"""Things of one kind that exclude one another."""

PERSONS = ("my mine|your yours", "his him he|her hers she")
"""Whose thing it is."""

PARTICLES = MappingProxyType({"in": "out", "out": "in", "on": "off", "off": "on", "up": "down", "down": "up"})
"""Words that turn the verb right before them round: log in, log out."""

QUESTIONS = frozenset({"who", "whom", "when", "where", "why"})
"""What is asked for, where an auxiliary follows. What, which and how ask for anything."""
AUXILIARIES = _set("is are was were am be do does did can could will would shall should may might must have has had")

GROUPS: tuple[tuple[Reason, tuple[str, ...]], ...] = (
    (Reason.VETO_POLARITY, OPPOSITES),
    (Reason.VETO_KIND, ALTERNATIVES),
    (Reason.VETO_PERSON, PERSONS),
)

NEGATIONS = _set(
    "not no never without nor neither none nobody nothing nowhere cannot cant dont doesnt didnt isnt arent wasnt "
    "werent wont wouldnt shouldnt couldnt havent hasnt hadnt aint mustnt unable"
)
UNDER_NEGATION = _set(
    "a an the this that these those i me my you your he his she her it its we our they their is am are was were be "
    "been being do does did have has had can could will would shall should may might must to any of in on at for with "
    "yet still been even ever really just able seem seems"
)
"""Words that may stand between a negation and what it negates."""
DOUBTS = _set("know idea sure clue understand certain")
"""Not to know something is no denial of it."""
SOFT_NEGATIVES = _set(
    "trouble difficulty difficult problem issue fail failure failing refuse impossible stop stopped miss missing lack "
    "absence absent omit omitting remove removed except exclude excluding avoid wrong broken unsuccessful decline "
    "reject unable wait pending instead rather"
)
"""Words that can say the same as a negation."""
NEGATING_PREFIXES = ("un", "dis", "de", "in", "im", "ir", "il", "non", "mis", "anti", "counter")

CURRENCIES = MappingProxyType(
    {
        "$": "usd", "dollar": "usd", "buck": "usd", "€": "eur", "euro": "eur", "£": "gbp", "pound": "gbp",
        "sterling": "gbp", "quid": "gbp", "¥": "jpy", "yen": "jpy", "₹": "inr", "rupee": "inr", "franc": "chf",
        "yuan": "cny", "rmb": "cny", "renminbi": "cny", "ruble": "rub", "zloty": "pln", "bitcoin": "btc",
        "ethereum": "eth", "peso": "mxn", "lira": "try", "krona": "sek", "krone": "nok",
    }
    | {
        code: code
        for code in _set(
            "usd eur gbp jpy chf cad aud nzd cny inr sek nok dkk pln czk huf mxn brl zar krw sgd hkd thb idr vnd ils "
            "aed sar rub ron bgn btc eth usdt"
        )
    }
)  # fmt: skip
"""Signs, names and codes of currencies."""

MEASURES = MappingProxyType(
    {
        "km": "km", "kilometer": "km", "kilometre": "km", "mi": "mile", "mile": "mile", "mph": "mph", "kph": "kph",
        "kmh": "kph", "meter": "m", "metre": "m", "m": "m", "cm": "cm", "centimeter": "cm", "centimetre": "cm",
        "mm": "mm", "millimeter": "mm", "ft": "ft", "feet": "ft", "foot": "ft", "inch": "inch", "inches": "inch",
        "yard": "yard", "yd": "yard", "kg": "kg", "kilo": "kg", "kilogram": "kg", "g": "g", "gram": "g", "mg": "mg",
        "milligram": "mg", "lb": "lb", "lbs": "lb", "oz": "oz", "ounce": "oz", "ton": "ton", "tonne": "ton",
        "l": "l", "liter": "l", "litre": "l", "ml": "ml", "milliliter": "ml", "gallon": "gal", "gal": "gal",
        "cup": "cup", "tablespoon": "tbsp", "tbsp": "tbsp", "teaspoon": "tsp", "tsp": "tsp", "pint": "pint",
        "quart": "quart", "celsius": "c", "celcius": "c", "c": "c", "fahrenheit": "f", "f": "f", "kelvin": "k",
        "kb": "kb", "mb": "mb", "megabyte": "mb", "gb": "gb", "gigabyte": "gb", "tb": "tb", "terabyte": "tb",
        "kw": "kw", "kwh": "kwh", "w": "w", "watt": "w", "volt": "v", "amp": "amp", "hz": "hz", "khz": "khz",
        "mhz": "mhz", "ghz": "ghz", "%": "%", "percent": "%", "am": "am", "pm": "pm", "acre": "acre",
        "hectare": "hectare",
    }
)  # fmt: skip
"""Units and the form they are compared in."""

PERIODS = MappingProxyType(
    {
        "second": "second", "sec": "second", "s": "second", "ms": "ms", "minute": "minute", "min": "minute",
        "hour": "hour", "hr": "hour", "h": "hour", "day": "day", "d": "day", "week": "week", "month": "month",
        "quarter": "quarter", "year": "year", "yr": "year", "decade": "decade", "century": "century",
    }
)  # fmt: skip
"""Lengths of time, compared only where both texts name one."""

COUNTED_UNITS = _set("m g l c f w mi ft am mm lb oz s h d min sec second quarter cup foot")
"""Units that are also other words; they count only behind a number."""

NUMBER_WORDS = MappingProxyType(
    _numbered(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen",
        0,
    )
    | _numbered("twenty thirty forty fifty sixty seventy eighty ninety", 2, 10)
)
SCALES = MappingProxyType(
    {"hundred": 100, "thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000, "k": 1_000}
)
LOOSE_NUMBERS = MappingProxyType(
    _numbered("first second third fourth fifth sixth seventh eighth ninth tenth", 1)
    | {"once": 1, "twice": 2, "thrice": 3}
)
"""Number words that are often no numbers ("the first time", "that one"): they count only against another number."""

MONTHS = MappingProxyType(
    _numbered("january february march april may june july august september october november december", 1)
    | _numbered("jan feb mar apr may jun jul aug sept oct nov dec", 1)
    | {"sep": 9}
)
AMBIGUOUS_MONTHS = frozenset({"may", "march", "mar", "jan", "august", "june"})
"""Months that are also other words or names; they count beside a number or a word such as "in"."""
MONTH_LEADS = _set("in of on by since until till from before after during this next last every late early mid")
WEEKDAYS = MappingProxyType(
    {
        "monday": 1, "tuesday": 2, "tues": 2, "wednesday": 3, "thursday": 4, "thurs": 4, "friday": 5, "saturday": 6,
        "sunday": 7,
    }
)  # fmt: skip

MOMENTS = _set("yesterday today tomorrow tonight")
LEADS_OF_TIME = MappingProxyType(
    {"last": "last", "previous": "last", "past": "last", "next": "next", "coming": "next", "following": "next",
     "upcoming": "next", "this": "this", "current": "this"}
)  # fmt: skip
TIMED = _set("week month year quarter night weekend morning evening summer winter spring fall season day")

CASED = _set("polish turkey china march may us who it aids nice reading job august lima bath cork chad lent")
"""Words whose capital makes them another word."""

FUNCTION_WORDS = _set(
    "a an the this that these those i me my mine myself you your yours he him his she her hers it its we us our ours "
    "they them their theirs is am are was were be been being do does did done doing have has had having can could will "
    "would shall should may might must and or but if then so as at by for from in into of off on onto out over to up "
    "with about there here what which who whom whose when where why how please just also too very really any some im "
    "ive youre thats whats hows wheres whos s t re ve ll d m let tell know want need like get got help way "
    "possible able hi hello hey thanks thank"
)
"""Words that say how something is asked and not what."""

PLAIN_STARTS = _set(
    "a an the this that these those i my you your he his she her we our they their is am are was were do does did have "
    "has had can could would should must and or but if so as at by for from in of on to with about there here what "
    "which whose when where why how please"
)
"""Words that mean the same with a capital at the start of a sentence."""

ENGLISH = _set(
    "the i my you your it this that what which when where why how who can could would should does did have has are "
    "were am be been of for from with about and if there please not don't i'm what's it's need want get know tell"
)
"""Words that hardly any other language has, and that few English questions do without."""
