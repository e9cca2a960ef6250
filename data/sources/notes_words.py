"""Words that made documents are filled with; each part of the data has its own."""

from __future__ import annotations

import random
from collections.abc import Sequence

FIRST_NAMES = (
    "Ada Agnes Aidan Alba Alma Amir Anders Anouk Anton Arda Aria Arlo Astrid Aurora Basil Beatriz "
    "Benno Bettina Bjarne Bram Briar Bruno Callum Camila Carla Cedric Celia Chiara Clara Conor "
    "Dagny Dalia Damir Daphne Darius Delphine Dina Dominik Edda Edgar Eira Elias Elif Elin Eloise "
    "Emeka Enzo Erik Esther Ewa Fabian Farah Felix Fergus Filip Fiona Flora Frida Gareth Gemma "
    "Georg Gianna Gideon Greta Gustav Hana Hanne Harriet Hector Hedda Henrik Hilde Hugo Ida Idris "
    "Ilse Imre Ines Ingrid Irina Isak Ivo Jana Jasper Joana Jonas Judith Juno Kaja Kamil Karim "
    "Katya Keira Kofi Lars Layla Leif Leonie Lidia Linus Livia Lorenz Lotte Luca Ludmila Lukas "
    "Mabel Magnus Maja Malik Manon Marek Maren Marisol Marta Matilda Mehmet Mila Milan Mirko Mona "
    "Nadia Naomi Nils Nina Noor Odette Olga Oskar Otto Paloma Pavel Pernilla Petra Philippa Priya "
    "Quentin Rafael Ragna Rania Remy Rhea Rita Robin Rosa Ruben Runa Sabine Salma Samir Saskia "
    "Selma Signe Silas Simona Solveig Stefan Svea Tamara Tariq Tessa Theo Thora Tilda Tomas Ulla "
    "Ursula Valentin Vera Viggo Vikram Wanda Wilma Xenia Yara Yusuf Zara Zofia"
).split()
SURNAMES = (
    "Abbott Adeyemi Albrecht Alvarez Andrade Arkwright Ashdown Bakker Banerjee Barlow Becker "
    "Bellamy Bianchi Blackwood Borg Brandt Brennan Bristow Calder Cardoso Castell Chandler Cole "
    "Conti Corrigan Crane Dahl Danso Delgado Demir Dorn Drummond Dubois Eklund Ellery Engel "
    "Fairfax Farrell Ferrari Fischer Fontaine Forsberg Fuchs Gallagher Garside Gibbons Goodwin "
    "Granger Grimaldi Haas Hagen Halvorsen Hartley Hassan Haugen Hewitt Holloway Horvat Ibsen "
    "Iyer Jansen Jarvis Jensen Kaplan Kaya Keller Kessler Kowalski Kruger Lang Larkin Lehtonen "
    "Lindqvist Lockhart Lombardi Lund Mackay Malone Marchetti Marlow Mendez Mercer Moreau Moser "
    "Nakata Navarro Nkosi Norling Novak Oakes Okafor Olsen Osman Paget Palmer Pasternak Pellegrini "
    "Petrov Pike Quigley Quist Radford Rahimi Ramos Redgrave Rossi Rowan Sandoval Schilling Seidel "
    "Serrano Sharma Silva Sorensen Stanton Steiner Sutter Tanaka Thorne Tolland Traore Ueda Vance "
    "Varga Vogel Wahlgren Walcott Weller Wexford Winslow Yilmaz Zeller Zimmer"
).split()
TOWN_BEGINS = (
    "Alder Amber Ash Barrow Birch Black Bram Bridge Brook Broom Carn Chal Clay Cold Crow Dun East "
    "Eden Elm Fair Fen Fox Gorse Gran Green Hart Haver Hazel Heron High Hollow Kel Kings Lark Lin "
    "Long Lyn Mar Mill Moor Nether North Oak Old Otter Pen Raven Red Ros Rush Sand Sel Shel Silver "
    "South Spring Stan Stone Summer Sutt Swan Tarn Thorn Upper Wal Water Wend West White Wil Win "
    "Wolver Wood Yar"
).split()
TOWN_ENDS = (
    "bridge bury by combe den field ford ham haven ley mere minster mouth port stead ton wick worth"
).split()
CODES = (
    "Alto Arvo Belo Brio Cira Corvo Dexa Domo Elara Enso Faro Fino Galo Gira Halo Hexa Ilio Ino "
    "Jova Juno Kilo Kora Lumo Lyra Mira Moxo Nexa Nivo Orba Otis Pavo Pilo Quado Quill Rova Rumo "
    "Sola Sento Tavo Tiro Umbra Unio Vela Vico Wexa Wavo Xeno Xilo Yano Yoro Zefo Zuma Akra Belt "
    "Cobo Drax Epso Flux Grit Hilo Isto Jett Klad Loom Mako Nord Opti Prax Rask Slate Trek Ultra "
    "Volt Warp Zest Bolt Carv Dune Echo Fizz Glow Hush"
).split()
DEVICES = (
    "bicycle pump|bread oven|camping stove|coffee grinder|cordless drill|desk lamp|door bell|"
    "electric kettle|floor heater|garden hose|hair dryer|hand mixer|headphones|heat pump|ice maker|"
    "juice press|label printer|lawn mower|leaf blower|microscope|night light|paper shredder|"
    "pocket radio|projector|record player|rice cooker|robot vacuum|sewing machine|sleeping bag|"
    "smart watch|solar charger|soldering iron|speaker|step ladder|telescope|tent|toaster|"
    "torch|tripod|walking frame|water filter|weather station|wood router|yoga mat|baby monitor|"
    "bench saw|bird camera|dish rack|dog collar|egg timer|fan|foot pump|glue gun|keyboard"
).split("|")
GOODS = (
    "apricot jam|ash bowl|barley flour|beech spoon|birch tray|black tea|blue enamel pot|brass hook|"
    "buckwheat honey|canvas bag|cedar box|cheese board|cherry shelf|clay jug|copper pan|cork mat|"
    "cotton apron|duck feather pillow|elm stool|felt slippers|fig chutney|flax towel|glass vase|"
    "goat cheese|hemp rope|herb cushion|iron poker|jute rug|kitchen broom|lambswool scarf|"
    "leather belt|lemon soap|lime candle|linen sheet|linseed oil|maple syrup|marble mortar|"
    "mint tea|mohair blanket|mustard pot|nettle shampoo|oak bench|oat biscuits|olive crate|"
    "onion basket|paper lantern|pear brandy|pepper mill|pine wreath|plum vinegar|poppy seeds|"
    "quilted glove|raffia hat|red lentils|rose water|rye bread|salt cellar|sea salt|sheepskin|"
    "silk ribbon|silver frame|slate coaster|steel whisk|stone lamp|straw basket|sugar bowl|"
    "tin whistle|tomato relish|velvet cushion|walnut oil|watering can|wax crayons|wicker chair|"
    "willow hurdle|wire basket|wool socks|yew comb|zinc bucket|garden twine|plant pot|seed tray|"
    "bird table|picnic rug|tea cosy|bread bin|cake tin|egg rack|fruit press|garlic string"
).split("|")
TASKS = (
    "boiler repair|budget draft|bus booking|cake stall|car park signs|charity raffle|"
    "children's corner|cleaning rota|cloakroom key|coat of paint for the hall|door lock|"
    "drain inspection|email list|fence repair|fire drill|first-aid course|flag order|"
    "flower boxes|garden plan|grant application|guest list|gutter cleaning|hall booking|"
    "heating bill|insurance renewal|kitchen rota|ladder check|leaflet printing|library visit|"
    "lighting upgrade|lost property box|membership cards|microphone hire|minibus service|"
    "music licence|newsletter|notice board|open day|photo archive|piano tuning|picnic|"
    "plumber's visit|poster design|projector loan|quiz night|rain barrel|roof survey|"
    "safety report|shed key|sound check|stage curtain|stamp order|summer camp|tea urn|"
    "ticket sale|tool inventory|tree planting|tombola|treasurer's report|trophy engraving|"
    "uniform order|volunteer rota|wall clock|website|welcome letter|window cleaning|"
    "wine order|workshop plan|yearbook|youth trip|accounts audit|bench repair|bin collection|"
    "bunting|camera loan|carpet cleaning|chair hire|choir visit|bread order|dance floor"
).split("|")
ORG_TYPES = (
    "Allotment Society|Amateur Theatre|Archery Club|Astronomy Circle|Beekeepers|Book Club|"
    "Brass Band|Bridge Club|Camera Club|Canoe Club|Chess Club|Choir|Cycling Club|Dance Group|"
    "Drama Circle|Fencing Club|Film Society|Gardeners|Hiking Club|History Circle|Judo Club|"
    "Knitting Group|Model Railway Club|Orchestra|Pottery Group|Rowing Club|Running Club|"
    "Sailing Club|Swimming Club|Tennis Club|Volunteer Fire Brigade|Wildlife Trust|Writers' Circle"
).split("|")
FIRM_TYPES = (
    "Bakery|Brewery|Ceramics|Designs|Dairy|Foods|Freight|Glassworks|Instruments|Joinery|Labs|"
    "Logistics|Optics|Outdoor|Paper|Robotics|Shipyard|Software|Systems|Textiles|Tools|Toys|"
    "Trading|Watches|Works"
).split("|")
EVENTS = (
    "Apple Festival|Autumn Fair|Boat Parade|Book Market|Bread Day|Candle Night|Cheese Fair|"
    "Comedy Evening|Craft Market|Dog Show|Fiddle Festival|Film Weekend|Flower Show|Folk Night|"
    "Food Market|Garden Walk|Ghost Walk|Harvest Supper|Health Day|Jazz Evening|Kite Festival|"
    "Lantern Parade|Light Festival|Maker Day|May Ball|Mushroom Hunt|Open Studio|Organ Recital|"
    "Photo Walk|Plant Swap|Poetry Slam|Pumpkin Race|Puppet Week|Repair Café|River Swim|"
    "Science Fair|Seed Exchange|Spring Concert|Star Party|Street Run|Tea Dance|Toy Fair|"
    "Vintage Rally|Wine Walk|Winter Market|Wool Fair|Youth Cup|Zine Fest"
).split("|")
JOBS = (
    "archivist|baker|bookbinder|bus driver|carpenter|caretaker|chemist|chimney sweep|cook|dentist|"
    "editor|electrician|engraver|farrier|florist|gardener|geologist|glazier|goldsmith|illustrator|"
    "interpreter|joiner|judge|lab technician|librarian|locksmith|mason|midwife|nurse|optician|"
    "painter|paramedic|pharmacist|plumber|potter|primary teacher|roofer|saddler|surveyor|tailor|"
    "translator|tree surgeon|vet|violin maker|weaver|web designer|welder|zookeeper|bookkeeper|"
    "ferry pilot|fishmonger|piano tuner|physiotherapist|sound engineer|stage manager"
).split("|")
HOBBIES = (
    "archery|badminton|ballroom dancing|beekeeping|birdwatching|bookbinding|bouldering|calligraphy|"
    "canoeing|chess|cross-stitch|curling|cycling|darts|embroidery|fencing|fly fishing|gliding|"
    "hockey|ice skating|judo|juggling|kite flying|knitting|life drawing|model building|"
    "orienteering|origami|paragliding|pottery|quilting|rowing|sailing|sculpture|skating|skiing|"
    "snooker|squash|swimming|table tennis|tap dancing|trampolining|volleyball|water polo|weaving|"
    "whittling|woodcarving|yoga|karate|surfing|baking|stargazing"
).split("|")
PETS = (
    "Biscuit Bramble Brisket Button Caramel Chutney Cinder Clover Comet Crumpet Dumpling Fidget "
    "Fudge Gizmo Inky Jellybean Marmite Mocha Mopsy Muffin Nibbles Noodle Nutmeg Patches Peanut "
    "Pepper Pickle Pippin Popcorn Pretzel Pudding Quaver Radish Rascal Ruffles Scamp Scruff "
    "Smudge Snowball Socks Sparky Sprout Teddy Thimble Tinker Toffee Truffle Turnip Waffle "
    "Whiskers Widget Zigzag"
).split()
HOUSES = (
    "Angel|Anchor|Bell|Bishop|Boar|Castle|Chestnut|Compass|Crown|Dolphin|Eagle|Falcon|Feathers|"
    "Fleece|Fountain|Globe|Griffin|Half Moon|Harbour|Hawthorn|Heath|Ivy|Jubilee|Juniper|Kestrel|"
    "Lantern|Laurel|Lilac|Lion|Magpie|Manor|Mermaid|Orchard|Pheasant|Pilgrim|Plough|Quarry|Queen's|"
    "Ram|Rose|Saddler's|Sailor's|Sparrow|Star|Sycamore|Talbot|Tower|Unicorn|Vine|Walnut|Weaver's|"
    "Windmill|Woolpack"
).split("|")
PRESENTS = (
    "bicycle|bird feeder|blue umbrella|board game|bread machine|camera|cello|chess set|"
    "coat rack|coffee table|cookery book|desk|drum kit|dulcimer|fishing rod|flute|garden bench|"
    "globe|green armchair|guitar|hammock|jigsaw|kayak|kite|loom|map of Iceland|mandolin|mirror|"
    "oak table|oil painting|piano stool|pocket knife|raincoat|red sofa|rucksack|"
    "secondhand van|sewing kit|silver ring|sledge|teapot|trumpet|typewriter|ukulele|"
    "violin|wall map|wheelbarrow|wool coat|wristwatch|yellow bookcase|accordion|banjo"
).split("|")
COLOURS = (
    "amber anthracite beige burgundy charcoal copper coral cream emerald graphite indigo "
    "ivory khaki lavender magenta mint mustard navy ochre olive pearl plum rust sage scarlet "
    "teal turquoise violet"
).split()
MONTHS = (
    "January February March April May June July August September October November December".split()
)
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()

SHARES = {"train": (0.0, 0.6), "tune": (0.6, 0.76), "test": (0.76, 1.0)}
LISTS = {
    "first": FIRST_NAMES,
    "surname": SURNAMES,
    "town_begin": TOWN_BEGINS,
    "code": CODES,
    "device": DEVICES,
    "good": GOODS,
    "task": TASKS,
    "org": ORG_TYPES,
    "firm": FIRM_TYPES,
    "event": EVENTS,
    "job": JOBS,
    "hobby": HOBBIES,
    "pet": PETS,
    "house": HOUSES,
    "present": PRESENTS,
    "colour": COLOURS,
}


def words_of(part: str) -> dict[str, Sequence[str]]:
    """Return the words of a part, train, tune or test, by their kinds; parts share none.

    Names of days and months, and the ends of towns' names, are common to all.
    """
    begin, end = SHARES[part]
    return {
        name: _shuffled(name, words)[round(begin * len(words)) : round(end * len(words))]
        for name, words in LISTS.items()
    }


def _shuffled(name: str, words: Sequence[str]) -> list[str]:
    return random.Random(f"notes {name}").sample(words, len(words))


def make_values(rng: random.Random, words: dict[str, Sequence[str]]) -> dict[str, str]:
    """Return one value of every kind, such as a person, a town or a date."""
    town = rng.choice(words["town_begin"]) + rng.choice(TOWN_ENDS)
    house = f"{rng.choice(words['house'])} {rng.choice(('House', 'Inn', 'Hotel', 'Lodge'))}"
    first, surname = rng.choice(words["first"]), rng.choice(words["surname"])
    day, month, year = rng.randint(1, 28), rng.choice(MONTHS), rng.randint(2015, 2027)
    date = rng.choice((f"{day} {month} {year}", f"{month} {day}, {year}"))
    code = f"{rng.choice(words['code'])} {rng.randint(2, 99)}"
    unit = rng.choice(("euros", "pounds", "dollars"))
    amount = rng.choice((rng.randint(3, 99), rng.randint(100, 950)))
    return {
        "first": first,
        "person": f"{first} {surname}",
        "town": town,
        "house": house,
        "hall": f"{town} {rng.choice(('Town Hall', 'Library', 'School', 'Arts Centre', 'Barn'))}",
        "org": f"{town} {rng.choice(words['org'])}",
        "firm": f"{surname} {rng.choice(words['firm'])}",
        "event": f"{town} {rng.choice(words['event'])}",
        "product": f"{code} {rng.choice(words['device'])}",
        "good": rng.choice(words["good"]),
        "task": rng.choice(words["task"]),
        "job": rng.choice(words["job"]),
        "hobby": rng.choice(words["hobby"]),
        "pet": rng.choice(words["pet"]),
        "present": rng.choice(words["present"]),
        "colour": rng.choice(words["colour"]),
        "date": date,
        "weekday": rng.choice(DAYS),
        "time": f"{rng.randint(6, 22):02d}:{rng.randrange(0, 60, 5):02d}",
        "year": str(rng.randint(1871, 2024)),
        "meeting": f"meeting of the {town} {rng.choice(words['org'])}",
        "joined": str(rng.randint(1988, 2026)),
        "recent": str(rng.randint(2019, 2027)),
        "money": f"{amount} {unit}",
        "count": str(rng.randint(11, 480)),
        "number": f"{rng.randint(2, 95) * 100:,}",
        "grams": f"{rng.randint(12, 190) * 10} grams",
        "hours": f"{rng.randint(3, 48)} hours",
        "months": f"{rng.randint(2, 10) * 6} months",
        "km": f"{rng.randint(11, 240)} km",
        "size": f"{rng.randint(10, 180)} cm",
        "platform": f"{rng.randint(1, 14)}{rng.choice(('', 'A', 'B'))}",
        "room": f"{rng.choice('ABCDEF')}{rng.randint(101, 499)}",
        "phone": f"{rng.randint(2000, 9899)}",
    }
