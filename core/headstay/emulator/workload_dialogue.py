"""What customers of the support-desk workload write, and what the desk answers.

User texts come from a seeded generator. A reply is a function of the user text alone, so that an emulated
model can answer a request whose head it does not know.
"""

import hashlib
import random

ITEMS = {
    "larkfield": ("wireless headset", "shelf speaker", "turntable", "portable speaker", "phono preamp"),
    "marlow": ("gooseneck kettle", "stand mixer", "cast-iron pan", "coffee grinder", "bread scale"),
}

SHARED_OPENING = (
    "Hello, I ordered the wireless headphones from your spring leaflet and they came this week. The left "
    "side goes silent after about ten minutes, then comes back when I switch them off and on again. I have "
    "charged them fully and tried two phones, it is the same with both. Can I send them back, or do you "
    "want to repair them first? I would rather not be without them for long."
)
"""The words with which several customers of one shop open: the same fault, the same leaflet, one week."""

_OPENINGS = (
    "Good evening, a {item} from order {order} arrived on {day} and something is not right with it.",
    "Hi, I am writing about the {item} in order {order}, which has been giving me trouble since {day}.",
    "Hello there, my {item} (order number {order}) stopped working properly on {day}, after only a few uses.",
    "I bought a {item} for my sister, order {order}, and since {day} we have both been puzzled by it.",
    "This is about order {order}. The {item} in it was fine at first, but on {day} the trouble began.",
)
_SYMPTOMS = (
    "It makes a faint clicking sound about every half minute, and when I move it the sound becomes louder. "
    "The little lamp on the front blinks twice and then stays dark, which the booklet does not mention "
    "anywhere.",
    "It works for perhaps {number} minutes and then switches itself off without any warning. When I leave "
    "it alone for an hour it starts again, as if nothing had happened, and the whole thing repeats.",
    "One edge is clearly bent and the carton had a dent in exactly that place, so I think it was dropped on "
    "the way. My neighbour took the parcel in and did not notice, which I do not blame her for.",
    "The surface came with a long scratch, and a part that is shown in the booklet as number {number} was "
    "not in the box at all. I have emptied every bag twice and looked under the cardboard as well.",
    "It smells slightly of warm plastic after {number} minutes, though I see no smoke and nothing is hot to "
    "the touch. I have unplugged it for now because my children are usually around.",
)
_WISHES = (
    "What would you suggest, and how long would it take? I need it again before the weekend after next.",
    "Could you tell me whether this counts as a fault, and who would pay for sending it back?",
    "I would prefer a replacement to a repair, if there is a choice. Is there one?",
    "Please let me know what you need from me, so that we do not have to write back and forth for days.",
    "If it is simpler for you I can also bring it to a collection point in {place}, just tell me how that works.",
)
_FOLLOW_UPS = (
    (
        "Thank you, I have now done what you proposed. With the other socket it ran for {number} minutes "
        "longer, but in the end the same thing happened, so I do not think that it is the wiring in my "
        "flat. The number on the plate underneath ends in {order}, in case that tells you anything.",
        "I tried the reset and held the button as long as you said, {number} seconds by the kitchen clock. "
        "The lamp came on, went off and has been dark since then. My partner tried it too, with the cable "
        "of another device, and got no further. We are both rather sure that it is the {item} itself.",
        "So, first the test: no difference at all, whether it stands upright or lies on its side. Second, "
        "the missing piece is the one marked {number} in the drawing, between the ring and the base. I also "
        "found a sticker with {order} on it, inside the lid of the carton.",
    ),
    (
        "Something else that may matter: I was away until {day} and could not open the parcel before then. "
        "I hope that the period for sending the {item} back does not start with the day on which the "
        "courier rang at an empty flat. The tracking page still shows {place} as the last stop, which "
        "cannot be right either.",
        "I looked for the confirmation again. It says that I paid {amount} euros, but my bank shows that "
        "amount twice, once on {day} and once the day after. Before we go on with the {item}, could you "
        "tell me whether one of the two will vanish by itself, or do I have to ask for it?",
        "In the meantime I asked a friend in {place} who repairs such things for a living. He would open it "
        "for {amount} euros, but he said that I should ask you first, because of the warranty. Would I lose "
        "anything if he looked at the {item}, without changing any part of it?",
    ),
    (
        "After sleeping on it I have changed my mind. I would now rather have my {amount} euros back than "
        "wait for the workshop, since I can borrow one until {day}. Is that still possible after everything "
        "we have tried, or have I already agreed to the repair by doing the tests?",
        "One more question before I decide. If I take the replacement and the new {item} has the same "
        "trouble, do we start all over again, with tests and pictures? A colleague in {place} went through "
        "that three times, not with you, and I would like to know it beforehand.",
        "I see. Then let us do it the way you describe. But I have thrown away the carton, at least the "
        "outer one, because it was soaked through when it came on {day}. Is an ordinary box with {number} "
        "centimetres of paper around it good enough, or will that be held against me?",
    ),
    (
        "The label has come, thank you. The collection point in {place} closes at noon on {day}, and I work "
        "until then. Could the courier pick it up from my office, or may my brother hand it in, although "
        "the name on the label is mine? It weighs about {number} kilos with the box, so he would have to "
        "drive.",
        "I have packed the {item} and wrote the reference on two sides. There is a second address line "
        "missing on the label, the one with the back building in {place}. Last time a parcel wandered about "
        "for {number} days because of that, so can it be added, or is the label final once it is printed?",
        "Before I hand it over: there is a small cable in the box that is my own, bought for {amount} euros "
        "somewhere else. I nearly sent it along. Would your returns hall have noticed, and is there a list "
        "of what belongs to the {item}, so that I can check the rest against it?",
    ),
    (
        "It was handed in on {day}, and the slip has the number {order}. I think that is everything, but to "
        "be sure: you write to me when it has been scanned, I do not have to do anything, and the {amount} "
        "euros come back to the account I paid from. Is that a fair summary?",
        "Good, that is settled then. Could you note somewhere that I prefer e-mail to the telephone? "
        "Somebody rang from {place} on {day}, while I was in a meeting, and left no message. And how will I "
        "know which of the two desks has the {item} at that moment?",
        "Thank you for sorting this out. Could you give me one list with all that we agreed, with the days, "
        "so that I can file it with order {order}? I tend to forget such things, and my sister will ask me "
        "about it at lunch on {day}, because part of it was her present.",
    ),
)
_ASIDES = (
    "Sorry for the long message.",
    "No hurry with the answer, tomorrow is early enough.",
    "I am writing from my phone, so please excuse the typing.",
    "By the way, the previous one from you lasted me nine years.",
    "I have kept all the papers, if that helps.",
    "My evenings are free, should anybody need to see it in person.",
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_PLACES = ("Ghent", "Aarhus", "Graz", "Tartu", "Lugano", "Porto", "Malmö", "Brno", "Kraków", "Görlitz")

_LEADS = (
    "Here is what happens next, and then the reasons for it.",
    "The short answer is yes, with one condition that is easy to meet.",
    "That points to a fault of the item, and you do not have to prove anything further.",
    "You have already done the useful tests, so there is no need to repeat them.",
    "Nothing is lost by what you did; the period for a return is counted from the day you received it.",
    "I take your message to be mainly about the time it will take, so I begin with that.",
)
_BODIES = (
    "Put the item in any sturdy box with a hand's width of paper on every side; the original carton is not "
    "needed, and a torn one is never held against you.",
    "The label is sent by e-mail within the hour and works at every collection point of the courier, and "
    "somebody else may hand the parcel in for you.",
    "The workshop needs seven to ten working days as a rule, and they write to you as soon as they have "
    "found the cause.",
    "If it cannot be repaired sensibly you choose between a new one and your money; nobody decides that for you.",
    "The amount goes back to the account from which it was paid, and the bank may need two more days to show it.",
    "A charge that shows up twice is nearly always a reservation, which lapses within a week without "
    "anybody asking for it.",
    "Please leave it unplugged until then, and do not open the housing, even if a screw seems loose.",
    "Looking at it from outside does not touch the warranty; a repair of one part by somebody else ends it "
    "for that part only.",
    "The missing part can be posted as a letter, since it can be fitted without tools, and it costs you nothing.",
    "I have passed on the corrected address line; the warehouse confirms it, and I will write again once it has.",
    "The courier's report is our task, so you need not call them, and a picture is welcome but not necessary.",
    "Should the same fault come back after that, there is no second round of tests: you may have your money at once.",
    "Your preference for e-mail is noted with the order, and colleagues who pick up the case will see it first.",
    "What lies in the box and does not belong to the item is sent back to you, so a cable of your own is not lost.",
)
_ENDINGS = (
    "For you there is nothing to do before the courier's first scan; after that you will hear from us "
    "within three days.",
    "Tell me which of the two you prefer, and I will set it going straight away.",
    "If anything in this does not match what you see on your side, write one line and I will look at it again.",
    "So: you pack it, we pay for it, and by the end of next week it is settled either way.",
    "That is all I need for the moment; the rest is on our side.",
)


def message(rng: random.Random, *, turn: int, item: str) -> str:
    """Make what a customer writes about an item at a turn of the conversation, counted from 1."""
    openings, follow_ups = (
        (_OPENINGS, _SYMPTOMS, _WISHES),
        (_FOLLOW_UPS[(turn - 2) % len(_FOLLOW_UPS)], _ASIDES),
    )
    banks = openings if turn == 1 else follow_ups
    return " ".join(rng.choice(bank) for bank in banks).format(
        item=item,
        order=rng.randint(100_000, 999_999),
        day=rng.choice(_DAYS),
        number=rng.randint(3, 29),
        amount=rng.randint(24, 380),
        place=rng.choice(_PLACES),
    )


def reply_to(user_text: str) -> str:
    """Return the desk's answer to a message: always the same for the same text, in every process."""
    rng = random.Random(hashlib.sha256(user_text.encode()).digest())
    bodies = rng.sample(_BODIES, k=rng.randint(2, 4))
    quoted = " ".join(user_text.split()[:6]).rstrip(".,;:")
    return " ".join((rng.choice(_LEADS), f'About your "{quoted}":', *bodies, rng.choice(_ENDINGS)))
