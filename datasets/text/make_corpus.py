#!/usr/bin/env python3
"""Writes the text corpus that ships with Consist: documents composed by a grammar, from a fixed seed.

Usage: make_corpus.py FOLDER            (the same bytes every time; no packages needed)

The documents are short chronicles of an invented valley and its railway, letters, timetables, recipes, dialogues, arithmetic and
small programs. What is said in a document hangs together (names, trades, places, sums, variable names), so that a language model
has something to learn at several distances. Every sentence is put together here; nothing is quoted from anywhere.
"""

import pathlib
import random
import string
import sys

FILES = 16
BYTES_PER_FILE = 30_000
SEED = 20240611

PEOPLE = [("Mara", "she", "her"), ("Tobias", "he", "his"), ("Ilse", "she", "her"), ("Anton", "he", "his"), ("Noor", "she", "her"),
          ("Pavel", "he", "his"), ("Renée", "she", "her"), ("Björn", "he", "his"), ("Lucía", "she", "her"), ("Kenji", "he", "his"),
          ("Wanda", "she", "her"), ("Zoltán", "he", "his")]
TRADES = {
    "baker": ("the bakery", ["bread", "rolls", "a tray of plum cakes"], ["kneaded the dough", "banked the oven", "swept the flour from the floor"]),
    "smith": ("the forge", ["hinges", "a new axle", "iron hoops"], ["blew on the coals", "tempered a blade", "counted the nails"]),
    "signaller": ("the signal box", ["a lamp", "the log of the night", "two flags"], ["pulled the third lever", "trimmed the lamp", "wrote down the hour"]),
    "weaver": ("the weaving shed", ["blue cloth", "a striped blanket", "sacking"], ["threaded the loom", "sorted the wool", "mended a torn sleeve"]),
    "miller": ("the mill", ["flour", "oats", "a sack of bran"], ["opened the sluice", "dressed the stones", "greased the great wheel"]),
    "teacher": ("the school", ["chalk", "a box of maps", "old copybooks"], ["rang the bell", "corrected the sums", "drew a map of the river"]),
    "gardener": ("the walled garden", ["pears", "seed potatoes", "lavender"], ["pruned the espaliers", "turned the compost", "watered the beds"]),
    "engineer": ("the engine house", ["a gauge", "copper pipe", "spare valves"], ["read the pressure", "oiled the crankshaft", "lit the boiler"]),
}
PLACES = ["Aldwater", "Fernbrück", "Low Harrow", "Sankt Veit", "Copperfold", "Quillmouth", "Ostend Halt", "Three Larches"]
WEATHER = {
    "rain": ["it rained without a pause", "the gutters ran over", "the track lay under water"],
    "snow": ["snow covered the sleepers", "the points froze", "the plough went out twice"],
    "fog": ["fog lay on the river", "nobody could see the far signal", "the bell was rung every minute"],
    "sun": ["the sun stood high", "the rails sang with heat", "children swam below the weir"],
    "wind": ["the wind tore at the slates", "a poplar fell across the line", "the washing flew into the orchard"],
}
MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"]
ADJECTIVES = """narrow brittle crimson hollow quiet rusty silver clumsy ancient gentle heavy crooked pale stubborn velvet bitter golden muddy
hasty wooden faded lonely generous slippery polished frozen hidden honest ragged solemn sturdy tidy unlikely weary yellow awkward brisk cheerful
drowsy earnest famous gloomy humble idle jagged keen lively marvellous nervous ordinary peculiar restless shallow tremendous useful vivid wild young
careful dusty elegant foreign grateful""".split()
NOUNS = """lantern ladder barrel kettle compass ledger whistle anvil basket candle drawer engine feather garden hammer island jacket keeper lock
meadow needle orchard pebble quarry ribbon saddle thimble umbrella valley window axle bridge chimney ditch envelope furnace gate harbour inkwell
jar kitchen lever magnet notebook oven pulley quilt rudder spindle telegraph urn violin wheelbarrow yard almanac blanket cupboard door easel ferry
goose hinge icehouse junction kiln lighthouse mirror nest otter parcel queue raft shovel teapot upland viaduct wagon hedge bucket""".split()
VERBS = """admired borrowed carried doubted examined followed gathered handled inspected joined kicked lifted measured noticed opened painted
questioned repaired sketched trusted unloaded visited weighed avoided buried cleaned described emptied fetched greeted hid imagined judged kept
loved moved named offered pushed recognised sold tied understood valued washed answered broke copied delivered exchanged forgot""".split()
ADVERBS = ["slowly", "carefully", "again", "secretly", "afterwards", "quickly", "without hesitation", "at dawn", "in silence", "before supper",
           "as usual", "with both hands", "reluctantly", "politely", "twice", "by mistake"]
FIRST = "Bal Cor Den Elm Fal Gor Hes Ilm Jor Kal Lim Mor Nes Orl Pel Quen Ros Sel Tor Ulv Ver Wen Yar Zel Ash Bruns Cal Dörf Eich Grün Hol Stav Kron Tann Wald Mir Ost Pfal Rav Sand Tren Vol Wyn Brem Drav Fjell Glen Hav Kest Lun".split()
MIDDLE = "a e i o u en er an il or ing ov und ell ar esk".split()
LAST = "berg ford dale mann stead wick ton ström son hurst bach ley field by moor lin ros vik thal worth".split()
FEELINGS = ["tired", "glad", "uneasy", "patient", "curious", "proud", "hungry", "thoughtful"]
NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


def cap(text):
    return text[0].upper() + text[1:]


PYTHON = [
    '''def total_$value(${noun}s):
    """The sum of the ${value}s of all ${noun}s."""
    total = 0
    for $noun in ${noun}s:
        total += $noun.$value
    return total


''', '''def filter_${noun}s(${noun}s, limit=$limit):
    # only ${noun}s with $word $value than the limit
    return [$noun for $noun in ${noun}s if $noun.$value $compare limit]


''', '''class $Noun:
    def __init__(self, name, $value=$limit):
        self.name = name
        self.$value = $value

    def __repr__(self):
        return f"$Noun({self.name!r}, {self.$value})"


''', '''${noun}s = load("${noun}s.json")
if len(${noun}s) == 0:
    raise ValueError("no ${noun}s")
longest = max(${noun}s, key=lambda $noun: $noun.$value)
print("$value:", longest.$value * $limit)


''']
C_LIKE = [
    '''int max_$value(const int* ${value}s, int n) {
\tint best = ${value}s[0];
\tfor (int i = 1; i < n; ++i) {
\t\tif (${value}s[i] > best) best = ${value}s[i];
\t}
\treturn best;
}

''', '''struct $Noun {
  std::string name;
  double $value = $limit.0;
};

bool operator<(const $Noun& a, const $Noun& b) { return a.$value < b.$value; }

''', '''// Throws if a $noun has more than $limit.
void check(const std::vector<$Noun>& ${noun}s) {
  for (const $Noun& $noun : ${noun}s) {
    if ($noun.$value > $limit) throw Error("$value of " + $noun.name);
  }
}

''']


class Writer:
    def __init__(self, rng):
        self.rng = rng

    def one(self, items):
        return items[self.rng.randrange(len(items))]

    def some(self, items, count):
        return self.rng.sample(items, count)

    def maybe(self, text, chance=0.5):
        return text if self.rng.random() < chance else ""

    def invented(self):
        """A name that most likely occurs in one document only, and there several times: it can be copied, not remembered."""
        return self.one(FIRST) + self.one(MIDDLE) + self.maybe(self.one(["n", "r", "l"]) + self.one(MIDDLE), 0.3) + self.one(LAST)

    def phrase(self):
        return f"{self.one(ADJECTIVES)} {self.one(NOUNS)}"

    # --- prose -----------------------------------------------------------------------------------------------------------

    def chronicle(self):
        (a, a_is, a_has), (b, b_is, b_has) = self.some(PEOPLE, 2)
        trade_a, trade_b = self.some(sorted(TRADES), 2)
        home, goods, works = TRADES[trade_a]
        other, other_goods, other_works = TRADES[trade_b]
        place, far = self.some(PLACES, 2)
        weather = self.one(sorted(WEATHER))
        month, year = self.one(MONTHS), 1870 + self.rng.randrange(60)
        out = [f"# {self.one(['A day in', 'News from', 'The chronicle of', 'How it went in'])} {place}, {month} {year}", ""]
        lines = [f"{a} was the {trade_a} of {place}, and {b} the {trade_b}."]
        lines.append(f"In {month} {self.one(WEATHER[weather])}, and {self.one(WEATHER[weather])}.")
        for _ in range(self.rng.randrange(3, 8)):
            who, pronoun, possessive, where, does, thing = self.one([
                (a, a_is, a_has, home, works, goods), (b, b_is, b_has, other, other_works, other_goods)])
            lines.append(self.one([
                lambda: f"{who} went to {where} early and {self.one(does)}{self.maybe(', as ' + pronoun + ' did every morning')}.",
                lambda: f"\"Is there any {self.one(['news', 'post', 'sign of the train'])} from {far}?\" {who} asked{self.maybe(', but nobody knew')}.",
                lambda: f"Because {self.one(WEATHER[weather])}, {who} stayed in {where} and {self.one(does)}.",
                lambda: f"{who} carried {self.one(thing)} to the platform; {pronoun} was {self.one(FEELINGS)}, and {possessive} hands were cold.",
                lambda: f"When {who} {self.one(does)}, the clock of {place} struck {self.one(NUMBERS[1:])}.",
                lambda: f"{cap(pronoun)} had promised {self.one(thing)} to the people of {far}, and {who} kept {possessive} promises.",
                lambda: f"It was {who} who said that the {self.one(['bridge', 'viaduct', 'tunnel', 'crossing'])} at {far} would hold{self.maybe(', although it creaked')}.",
            ])())
        end = self.one([
            f"So the {trade_a} and the {trade_b} met at {home}, and {a} gave {b} {self.one(goods)}.",
            f"In the evening the train from {far} came in {self.one(NUMBERS[2:])} minutes late, and {b} laughed.",
            f"That is why the {trade_b} of {place} still sends {self.one(other_goods)} to {far} every {month}."])
        lines.append(end)
        width = self.one([2, 3, 4])
        for i in range(0, len(lines), width):
            out += [" ".join(lines[i:i + width]), ""]
        return "\n".join(out) + "\n"

    def tale(self):
        a, b, place = self.invented(), self.invented(), self.invented()
        title = self.one(["Mr", "Mrs", "Dr", "Captain", "Old"])
        first, second, third = self.phrase(), self.phrase(), self.phrase()
        out = [f"{cap(first)} and {second}: a tale from {place}", ""]
        lines = [f"{title} {a} of {place} owned a {first}."]
        for _ in range(self.rng.randrange(4, 10)):
            who, what = self.one([a, b]), self.one([first, second, third])
            lines.append(self.one([
                lambda: f"{title if who == a else 'Young'} {who} {self.one(VERBS)} the {what} {self.one(ADVERBS)}.",
                lambda: f"Nobody in {place} had ever {self.one(['seen', 'owned', 'wanted'])} a {what}, least of all {who}.",
                lambda: f"The {self.one(ADJECTIVES)} {self.one(NOUNS)} of {who} stood beside the {what.split()[1]}.",
                lambda: f"\"Give me the {what},\" said {b}, \"and you may keep the {self.one(NOUNS)}.\"",
                lambda: f"First {who} {self.one(VERBS)} the {self.one(NOUNS)}, then {who} {self.one(VERBS)} the {what}.",
                lambda: f"Was the {what.split()[1]} really {what.split()[0]}? {who} {self.one(['thought so', 'doubted it', 'did not say'])}.",
            ])())
        lines.append(f"In the end {b} got the {first}, and {title} {a} got the {self.one([second, third])}.")
        for i in range(0, len(lines), 3):
            out += [" ".join(lines[i:i + 3]), ""]
        return "\n".join(out) + "\n"

    def inventory(self):
        owner = self.invented()
        goods = [(self.rng.randrange(1, 40), self.phrase()) for _ in range(self.rng.randrange(3, 9))]
        out = [f"Inventory of the house of {owner}:"]
        out += [f"  * {count} {name}{'' if count == 1 else 's'}" for count, name in goods]
        out.append(f"In all {sum(count for count, _ in goods)} things, {len(goods)} kinds; signed, {owner}.")
        return "\n".join(out) + "\n\n"

    def letter(self):
        (a, _, _), (b, _, _) = self.some(PEOPLE, 2)
        place, far = self.some(PLACES, 2)
        trade = self.one(sorted(TRADES))
        where, goods, works = TRADES[trade]
        thing = self.one(goods)
        count = self.rng.randrange(2, 13)
        weather = self.one(sorted(WEATHER))
        return "\n".join([
            f"{place}, {self.rng.randrange(1, 29)} {self.one(MONTHS)}", "", f"Dear {b},", "",
            f"since you left for {far} {self.one(WEATHER[weather])}. I'm {self.one(FEELINGS)}, and so is everyone at {where}.",
            f"Yesterday I {self.one(works)}; the day before I {self.one(works)}. You wouldn't believe how long it took!",
            f"Please send {NUMBERS[count]} more of what you sent before: we've used {NUMBERS[count - 1]}, and {NUMBERS[1]} is broken.",
            f"In return you'll get {thing}. They say that {thing} from {place} can't be had in {far}.", "",
            self.one(["With kind regards,", "Yours as ever,", "In haste,"]), f"{a}, {trade}", "", ""])

    def dialogue(self):
        (a, _, _), (b, _, _) = self.some(PEOPLE, 2)
        place = self.one(PLACES)
        out = [f"[{a} and {b} are waiting at {place}.]"]
        hour, late = self.rng.randrange(5, 21), self.rng.randrange(2, 50)
        out.append(f"{a.upper()}: When does the train leave?")
        out.append(f"{b.upper()}: At {hour:02d}:00. But it's {late} minutes late, so it'll be {hour:02d}:{late:02d}.")
        for _ in range(self.rng.randrange(1, 5)):
            trade = self.one(sorted(TRADES))
            where, goods, works = TRADES[trade]
            thing = self.one(goods)
            out.append(f"{a.upper()}: {self.one(['Who', 'And who'])} {self.one(works)}?")
            out.append(f"{b.upper()}: {self.one(['The', 'That was the'])} {trade}, of course{self.one(['.', '!', ' …'])} {cap(thing)} {self.one(['comes', 'came'])} from {where}.")
        out.append(f"{a.upper()}: Then we{self.one([chr(39), '’'])}ll wait until {hour:02d}:{late:02d}.")
        return "\n".join(out) + "\n\n"

    # --- tables and numbers ----------------------------------------------------------------------------------------------

    def timetable(self):
        stops = self.some(PLACES, self.rng.randrange(3, 7))
        minute = self.rng.randrange(5 * 60, 20 * 60)
        out = [f"Train {self.rng.randrange(100, 999)} {stops[0]} – {stops[-1]}", "stop            arr.   dep.   km"]
        km = 0
        for i, stop in enumerate(stops):
            arrive = "     " if i == 0 else f"{minute // 60:02d}:{minute % 60:02d}"
            minute += 2
            depart = "     " if i + 1 == len(stops) else f"{minute // 60:02d}:{minute % 60:02d}"
            out.append(f"{stop:<15} {arrive}  {depart}  {km:>3}")
            step = self.rng.randrange(4, 25)
            km += step
            minute += step * 2
        return "\n".join(out) + "\n\n"

    def sums(self):
        out = [f"Exercise {self.rng.randrange(1, 99)}."]
        for _ in range(self.rng.randrange(4, 9)):
            a, b = self.rng.randrange(1, 60), self.rng.randrange(1, 60)
            kind = self.rng.randrange(4)
            if kind == 0:
                out.append(f"{a} + {b} = {a + b}")
            elif kind == 1:
                out.append(f"{a + b} - {a} = {b}")
            elif kind == 2:
                out.append(f"{a % 12 + 1} × {b % 12 + 1} = {(a % 12 + 1) * (b % 12 + 1)}")
            else:
                thing = self.one(["apples", "lamps", "tickets", "sacks"])
                out.append(f"{self.one(PEOPLE)[0]} had {a} {thing} and got {b} more: {a + b} {thing} in all.")
        return "\n".join(out) + "\n\n"

    def recipe(self):
        base = self.one(["pear cake", "oat soup", "potato bread", "plum dumplings", "lavender syrup", "barley stew"])
        items = self.some([("flour", "g"), ("butter", "g"), ("water", "ml"), ("milk", "ml"), ("sugar", "g"), ("oats", "g"), ("honey", "g"), ("salt", "g")], 4)
        out = [f"{cap(base)} (serves {self.rng.randrange(2, 9)})"]
        out += [f"- {self.rng.randrange(1, 20) * 25} {unit} {name}" for name, unit in items]
        steps = [f"Mix the {items[0][0]} with the {items[1][0]}.", f"Add the {items[2][0]} slowly, then the {items[3][0]}.",
                 f"Leave it for {self.rng.randrange(2, 9) * 5} minutes.",
                 f"{self.one(['Bake', 'Cook', 'Simmer'])} for {self.rng.randrange(4, 13) * 5} minutes at {self.rng.randrange(14, 24) * 10} °C."]
        out += [f"{i + 1}. {step}" for i, step in enumerate(steps)]
        return "\n".join(out) + "\n\n"

    # --- programs --------------------------------------------------------------------------------------------------------

    def names(self):
        noun = self.one(["wagon", "ticket", "lamp", "signal", "sack", "letter", "stop", "lever"])
        value = self.one(["weight", "price", "length", "delay", "age", "count"])
        return noun, value

    def program(self, texts):
        noun, value = self.names()
        words = {"noun": noun, "value": value, "Noun": cap(noun), "limit": self.rng.randrange(2, 100)}
        text = texts[self.rng.randrange(len(texts))]
        if "$compare" in text:
            words["compare"], words["word"] = self.one([(">", "more"), ("<", "less")])
        return string.Template(text).substitute(words)

    def python(self):
        return self.program(PYTHON)

    def c_like(self):
        return self.program(C_LIKE)

    def json(self):
        noun, value = self.names()
        rows = ",\n".join(f"    {{\"name\": \"{self.one(PEOPLE)[0]}\", \"place\": \"{self.one(PLACES)}\", \"{value}\": {self.rng.randrange(1, 500)}}}"
                          for _ in range(self.rng.randrange(2, 5)))
        return f"{{\n  \"{noun}s\": [\n{rows}\n  ]\n}}\n\n"

    def document(self):
        kinds = [self.chronicle] * 6 + [self.tale] * 8 + [self.inventory] * 3 + [self.letter] * 3 + [self.dialogue] * 3 + [self.timetable, self.sums, self.recipe]
        kinds += [self.python] * 2 + [self.c_like] * 2 + [self.json]
        return self.one(kinds)()


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        writer = Writer(random.Random(SEED + number))
        text = ""
        while len(text.encode()) < BYTES_PER_FILE:
            text += writer.document()
        (folder / f"valley-{number:02d}.txt").write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
